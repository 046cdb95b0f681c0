"""
tools/fuzz-records: damaged definitions.
"""

import random

from fuzzing_records import command


def test_damaged_definitions_keep_the_promises_of_the_reader():
    """
    Damaged examples are refused with problems, or convert, check and generate.
    """
    chance = random.Random(1)
    corpus = command.corpus_of_examples()

    accepted = 0
    for _ in range(200):
        name, text = chance.choice(corpus)
        accepted += command.read(name, command.damage(text, chance, corpus))[0]

    assert 0 < accepted < 200


def test_a_broken_promise_is_kept_in_a_file(tmp_path, monkeypatch, capsys):
    """
    If reading raises anything else than a refusal, the file is kept and the exit code is 1.
    """

    def fails(named):
        raise RecursionError

    corpus = command.corpus_of_examples()
    monkeypatch.setattr(command, "corpus_of_examples", lambda: corpus)
    monkeypatch.setattr(command, "read_texts", fails)
    monkeypatch.chdir(tmp_path)

    assert command.main(["--seconds", "60", "--seed", "1"]) == 1

    assert "RecursionError" in capsys.readouterr().out
    assert [path.name.startswith("fuzz-records-1-0") for path in tmp_path.iterdir()] == [True]
