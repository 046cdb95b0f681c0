"""
Planning for small logs: the rules of Spark's optimizer that cost more time than they save there.

The other rules move filters and columns to the files. Rules that a plan needs to be right cannot be left out.
"""

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

SETTINGS = {
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
