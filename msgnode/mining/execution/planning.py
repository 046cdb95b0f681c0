"""
Planning for few rows: without compiled queries and shuffles, and without those rules of Spark's optimizer
that cost more time than they save there.

The other rules move filters and columns to the files. Rules that a plan needs to be right cannot be left out.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer."
_DISPENSABLE = (
    "BooleanSimplification", "CollapseGroupedSumOfCount", "CollapseRepartition", "CollapseWindow",
    "CombineConcats", "ConstantFolding", "ConstantPropagation", "CostBasedJoinReorder", "DecimalAggregates",
    "EliminateAggregateFilter", "EliminateDistinct", "EliminateLimits", "EliminateMapObjects",
    "EliminateOffsets", "EliminateOuterJoin", "EliminateSerialization", "EliminateSorts",
    "EliminateWindowPartitions", "FoldablePropagation", "GenerateOptimization", "InferFiltersFromConstraints",
    "InferFiltersFromGenerate", "InferWindowGroupLimit", "LikeSimplification", "LimitPushDown",
    "LimitPushDownThroughWindow", "NullDownPropagation", "NullPropagation", "ObjectSerializerPruning",
    "OptimizeCsvJsonExprs", "OptimizeIn", "OptimizeJoinCondition", "OptimizeOneRowPlan",
    "OptimizeOneRowRelationSubquery", "OptimizeRand", "OptimizeRepartition", "OptimizeUpdateFields",
    "OptimizeWindowFunctions", "PropagateEmptyRelation", "PruneFilters", "PullUpProjectAliasThroughWindow",
    "PushDownJoinThroughUnion", "PushDownLeftSemiAntiJoin", "PushExtraPredicateThroughJoin",
    "PushFoldableIntoBranches", "PushLeftSemiLeftAntiThroughJoin", "PushProjectionThroughLimitAndOffset",
    "RemoveLiteralFromGroupExpressions", "RemoveRedundantAggregates", "RemoveRedundantSorts",
    "RemoveRepetitionFromGroupExpressions", "ReorderAssociativeOperator", "ReorderJoin",
    "ReplaceNullWithFalseInPredicate", "RewriteNonCorrelatedExists", "SimplifyBinaryComparison",
    "SimplifyCaseConversionExpressions", "SimplifyCasts", "SimplifyConditionals",
    "SimplifyDateTimeConversions", "TransposeWindow", "UnwrapCastInBinaryComparison",
)  # fmt: skip

# It would make subqueries of joins, which are planned and executed one by one.
_MERGING = "org.apache.spark.sql.execution.planmerging.MergeSubplans"

DUCKDB = "spark.msgnode.duckdb.enabled"
_PARTITIONS = "spark.sql.shuffle.partitions"
SETTINGS = {
    _PARTITIONS: "1",
    "spark.sql.optimizer.excludedRules": ",".join([*(_OPTIMIZER + name for name in _DISPENSABLE), _MERGING]),
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    # In one partition a join needs no broadcast and no shuffle, and a plan without is kept (kept_plans).
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.maxSinglePartitionBytes": str(2**63 - 1),
    "spark.sql.defaultSizeInBytes": "1",  # else rows of an unknown number are too many for one partition
    "spark.sql.optimizer.disableHints": "true",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # The first rows in an order are sorted: else Java code is generated and compiled for each order.
    "spark.sql.execution.topKSortFallbackThreshold": "0",
    # Without compiled queries, what is computed once goes through a cache that is cleared for each row.
    "spark.sql.subexpressionElimination.enabled": "false",
}


def on_one_machine(spark: SparkSession) -> bool:
    return str(spark.sparkContext.master).startswith("local")


def may_use_duckdb(spark: SparkSession) -> bool:
    """
    May DuckDB answer for this Spark? On one machine, unless the user wants all from Spark.
    """
    return on_one_machine(spark) and str(spark.conf.get(DUCKDB, "true")).lower() != "false"


def in_one_partition(spark: SparkSession) -> bool:
    """
    Are rows kept in one partition, as for a small log on one machine? Such rows are grouped and sorted
    without a shuffle.
    """
    return on_one_machine(spark) and spark.conf.get(_PARTITIONS) == "1"


@contextmanager
def for_few_rows(spark: SparkSession, few: bool = True) -> Iterator[None]:
    """
    Plan queries in this block for few rows, unless there are not `few`.
    """
    if not few or in_one_partition(spark):
        yield
        return
    settings = SETTINGS | {"spark.sql.leafNodeDefaultParallelism": "1"}
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name in settings:
            spark.conf.set(name, settings[name])
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)
