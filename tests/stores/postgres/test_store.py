"""`index --to postgresql://`: what is written, and what is left when it is killed, refused or cut off."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sentcli.errors import SentcliError
from sentcli.stores.postgres import store
from tests.search.conftest import clustered, write_directory
from tests.stores.postgres.conftest import rows_of
from tests.verbs.test_retrieve_corpus import ROWS

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")

TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"


def lines(corpus):
    return [json.loads(line) for line in corpus.read_text().splitlines()]


def ids(hits):
    return {key for key, _ in hits[0]}


def test_only_what_changed_is_written(write, find, corpus, tiny_bert, ask):
    write(corpus, "-m", tiny_bert)
    again = write(corpus, "-m", tiny_bert)
    assert (again["written"], again["unchanged"]) == (0, len(ROWS))
    first, second = lines(corpus)[:2]
    new = {"_id": "new", "text": "a new cat", "rating": 1, "unit price": 1.5, "added": "2024-02-01"}
    rows_of(corpus, [first, {**second, "rating": 99}, new])
    kept = write(corpus, "-m", tiny_bert)
    assert (kept["written"], kept["encoded"], kept["deleted"], kept["rows"]) == (2, 1, 0, len(ROWS) + 1)
    pruned = write(corpus, "-m", tiny_bert, "--prune")
    assert (pruned["written"], pruned["deleted"], pruned["rows"]) == (0, len(ROWS) - 2, 3)
    assert ids(find("--where", "rating = 99")) == {second["_id"]}
    assert ids(find("--top-k", 99)) == {first["_id"], second["_id"], "new"}
    assert ask(TABLES) == [("corpus",)]


@pytest.mark.parametrize(
    ("how", "step"), [("--update", "delete"), ("--update", "move"), ("--overwrite", "_build_index")]
)
def test_readers_see_the_old_rows_until_all_are_there(write, corpus, tiny_bert, ask, monkeypatch, how, step):
    write(corpus, "-m", tiny_bert)
    summary = "SELECT min(left(id, 3)), count(*) FROM corpus"
    before = ask(summary)
    seen = []
    owner = store.PostgresStore if step.startswith("_") else store
    real = getattr(owner, step)

    def looking(*arguments):
        done = real(*arguments)
        seen.append(ask(summary))
        return done

    monkeypatch.setattr(owner, step, looking)
    rows_of(corpus, [{**row, "_id": f"new{number}"} for number, row in enumerate(lines(corpus)[1:])])
    write(corpus, "-m", tiny_bert, how)
    assert seen and all(found == before for found in seen)
    assert ask(summary) == [("new", before[0][1] - 1)]


KILLED_ROWS = 20_000


@pytest.mark.slow
@pytest.mark.parametrize("with_table", [False, True])
def test_a_killed_run_goes_on(invoke, write, postgres, ask, tmp_path, with_table):
    if with_table:
        write_directory(tmp_path / "old", clustered(20, 16, seed=5))
        write(tmp_path / "old")
    write_directory(tmp_path / "d", clustered(KILLED_ROWS, 16), shard_rows=5000)
    words = ["index", str(tmp_path / "d"), "--to", postgres, "-q"]
    running = subprocess.Popen([sys.executable, "-m", "sentcli", *words])
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and running.poll() is None:
        if ("corpus__next",) in ask(TABLES) and ask("SELECT count(*) >= 3000 FROM corpus__next") == [(True,)]:
            break
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    done = invoke("retrieve", "--corpus", postgres, "--count-by", "id", "--json", "-", check=0 if with_table else 2)
    if with_table:
        assert len(json.loads(done.stdout)["counts"]["values"]) == 20, "the old rows answer"
    results = write(tmp_path / "d")
    assert results["unchanged"] > 0 and results["written"] == KILLED_ROWS - results["unchanged"] > 0
    assert results["rows"] == KILLED_ROWS
    assert ask("SELECT count(DISTINCT sentcli_order) FROM corpus") == [(results["rows"],)]
    assert ask(TABLES) == [("corpus",)]


STEPS = {
    "append": (store, "append"),
    "publish": (store.PostgresStore, "publish"),
    "_build_index": (store.PostgresStore, "_build_index"),
    "rename": (store, "rename"),
    "to_measure": (store.PostgresStore, "to_measure"),
    "complete": (store.PostgresStore, "complete"),
}


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("how", ["--overwrite", "--update"])
def test_an_end_between_two_steps_leaves_whole_rows(invoke, write, postgres, monkeypatch, tmp_path, step, how, ask):
    """An error, which stands for a kill, before each step; then another corpus, and the first again."""
    counts = {"old": 200, "new": 210, "other": 90}
    for name, count in counts.items():
        write_directory(tmp_path / name, clustered(count, 16, seed=count))
    index = ("--type", "ivf", how)
    write(tmp_path / "old", "--type", "ivf")

    def answered():
        done = invoke("retrieve", "--corpus", postgres, "--count-by", "text", "--json", "-", check=0)
        return sum(entry["rows"] for entry in json.loads(done.stdout)["counts"]["values"])

    def stopped(*arguments, **options):
        raise SentcliError("stopped")

    is_reached = how == "--overwrite" or step not in ("_build_index", "rename")
    with monkeypatch.context() as patch:
        patch.setattr(*STEPS[step], stopped)
        invoke("index", tmp_path / "new", "--to", postgres, *index, check=1 if is_reached else 0)
    is_old = step not in ("to_measure", "complete") and is_reached
    assert answered() == counts["old" if is_old else "new"]
    if step == "publish":
        assert write(tmp_path / "other", *index)["rows"] == counts["other"], "what waited is not in it"
        assert ask("SELECT count(*) FROM corpus") == [(counts["other"],)]
    results = write(tmp_path / "new", *index)
    assert results["rows"] == answered() == counts["new"]
    assert not is_reached or results["recall"]["measured_rows"] == counts["new"]
    assert ask(TABLES) == [("corpus",)]
    assert ask("SELECT count(*) FROM pg_indexes WHERE tablename = 'corpus'") == [(2,)]


@pytest.mark.slow
def test_a_second_writer_is_told_to_wait(write, corpus, tiny_bert, monkeypatch, postgres):
    second = []
    real = store.append

    def meanwhile(*arguments):
        words = ["index", str(corpus), "--to", postgres, "-m", str(tiny_bert)]
        second.append(subprocess.run([sys.executable, "-m", "sentcli", *words], capture_output=True, text=True))
        return real(*arguments)

    monkeypatch.setattr(store, "append", meanwhile)
    assert write(corpus, "-m", tiny_bert)["rows"] == len(ROWS)
    assert second[0].returncode == 2 and "another process" in second[0].stderr


@pytest.mark.parametrize("step", ["append", "publish", "rename"])
def test_a_connection_that_ends_in_the_middle(write, corpus, tiny_bert, monkeypatch, ask, step, postgres):
    write(corpus, "-m", tiny_bert)
    rows_of(corpus, [{**row, "rating": 50} for row in lines(corpus)])
    owner, name = STEPS[step]
    real = getattr(owner, name)

    def cut_off(*arguments):
        ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = %s",
            postgres.partition("@/")[2].partition("?")[0])  # fmt: skip
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, cut_off)
        said = write(corpus, "-m", tiny_bert, "--overwrite", check=2)
    assert "connection has ended" in said and said.count("error:") == 1
    assert ask("SELECT max(rating), count(*) FROM corpus") == [(4, len(ROWS))]
    assert write(corpus, "-m", tiny_bert, "--overwrite")["encoded"] == (len(ROWS) if step == "append" else 0)
    assert ask("SELECT min(rating), count(*) FROM corpus") == [(50, len(ROWS))]


@pytest.fixture
def role(postgres_server, postgres, ask):
    """A role that may log in, and a function that returns its address with a password."""
    connection, _ = postgres_server
    connection.execute("CREATE ROLE reader LOGIN PASSWORD 'a-secret-word'")
    yield postgres.replace("postgres@", "reader@")
    ask("DROP OWNED BY reader")
    connection.execute("DROP ROLE reader")


def test_a_role_that_may_read_alone(invoke, write, corpus, tiny_bert, role, ask):
    assert "reader" in role
    said = write(corpus, "-m", tiny_bert, check=2, to=role)
    assert "no right" in said
    write(corpus, "-m", tiny_bert)
    asked = ("retrieve", "--corpus", role, "-m", tiny_bert, "--query", "cat", "--top-k", 1)
    assert "no right" in invoke(*asked, check=2).stderr
    ask("GRANT SELECT ON corpus TO reader")
    invoke(*asked, check=0)
    assert "no right" in write(corpus, "-m", tiny_bert, "--overwrite", check=2, to=role)
    write(corpus, "-m", tiny_bert, "--overwrite")
    invoke(*asked, check=0)  # its right is that of the new table, too


def test_a_database_without_pgvector(invoke, write, corpus, tiny_bert, role, ask, postgres):
    ask("DROP EXTENSION vector")
    said = write(corpus, "-m", tiny_bert, check=2, to=role)
    assert "CREATE EXTENSION vector" in said and "superuser" in said
    assert "no extension vector" in invoke("retrieve", "--corpus", postgres, "--count-by", "id", check=2).stderr
    assert write(corpus, "-m", tiny_bert)["rows"] == len(ROWS), "who may make it makes it"


@pytest.mark.slow
def test_a_password_is_printed_nowhere(invoke, corpus, tiny_bert, role, postgres, postgres_server, ask, monkeypatch):
    connection, _ = postgres_server
    hba = Path(connection.execute("SHOW hba_file").fetchone()[0])
    before = hba.read_text()
    try:
        hba.write_text(f"local all reader scram-sha-256\n{before}")
        connection.execute("SELECT pg_reload_conf()")
        ask("GRANT CREATE ON SCHEMA public TO reader")
        for password, code in (("a-secret-word", 0), ("short", 2), ("a wrong/one", 2)):
            in_address = password.replace(" ", "%20").replace("/", "%2F")
            of_role = role.replace("reader@", f"reader:{in_address}@")
            for words in (
                ("index", corpus, "-m", tiny_bert, "--to", of_role),
                ("retrieve", "--corpus", of_role, "--count-by", "id"),
            ):
                done = invoke(*words, "--json", "-", check=code)
                for secret in (password, in_address):
                    assert secret not in done.stdout + done.stderr, words
            if code:
                assert "reader@" in done.stderr and "cannot be opened" in done.stderr
        monkeypatch.setenv("PGPASSWORD", "a-secret-word")
        invoke("retrieve", "--corpus", role, "--count-by", "id", check=0)
        monkeypatch.delenv("PGPASSWORD")
        for password, code in (("a-secret-word", 0), ("abc", 2)):
            query = f"{role}&password={password}"
            done = invoke("index", corpus, "-m", tiny_bert, "--to", query, "--json", "-", check=code)
            assert f"password={password}" not in done.stdout + done.stderr
        done = invoke("index", corpus, "-m", tiny_bert, "--to", f"{postgres}&password=abc", "--json", "-", check=0)
        assert "password=abc" not in done.stdout + done.stderr, "where no password is asked for"
    finally:
        hba.write_text(before)
        connection.execute("SELECT pg_reload_conf()")


@pytest.mark.parametrize("address", ["nodatabase", "nohost", "malformed"])
def test_an_address_that_leads_nowhere_is_one_line(invoke, write, corpus, tiny_bert, postgres, address):
    name = postgres.partition("@/")[2].partition("?")[0]
    addresses = {
        "nodatabase": postgres.replace(f"/{name}?", "/nothing?"),
        "nohost": "postgresql://me@127.0.0.1:1/db",
        "malformed": "postgresql://me@host/db?no-such-option=1",
    }
    for words in (("index", corpus, "-m", tiny_bert, "--to"), ("retrieve", "--count-by", "id", "--corpus")):
        said = invoke(*words, addresses[address], check=2).stderr
        assert "cannot be opened" in said.splitlines()[-1] and said.count("error:") == 1


def test_tables_of_others_are_left_alone(write, invoke, postgres, corpus, tiny_bert, ask):
    ask("CREATE TABLE corpus (id text); CREATE TABLE mine__next (id text)")
    assert "not made by sentcli" in write(corpus, "-m", tiny_bert, check=2)
    assert "not made by sentcli" in write(corpus, "-m", tiny_bert, "--overwrite", check=2)
    assert "not made by sentcli" in write(corpus, "-m", tiny_bert, "--collection", "mine", check=2)
    assert ask(TABLES) == [("corpus",), ("mine__next",)]
    said = invoke("retrieve", "--corpus", postgres, "--collection", "corpse", "--count-by", "id", check=2).stderr
    assert "did you mean 'corpus'" in said
    for name in ("a.b.c", "x" * 56, "rows__next", ""):
        write(corpus, "-m", tiny_bert, "--collection", name, check=2)
    assert "schema" in write(corpus, "-m", tiny_bert, "--collection", "nowhere.rows", check=2)


def test_what_depends_on_a_table_keeps_it(write, corpus, tiny_bert, ask):
    write(corpus, "-m", tiny_bert)
    ask("CREATE VIEW cats AS SELECT id FROM corpus")
    assert "cats" in write(corpus, "-m", tiny_bert, "--overwrite", check=2)
    assert ask("SELECT count(*) FROM cats") == [(len(ROWS),)]
    ask("DROP VIEW cats")
    assert write(corpus, "-m", tiny_bert, "--overwrite")["encoded"] == 0, "what was encoded is kept"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"id": "x" * 3000, "text": "a"}, "at most 2,6"),
        ({"id": "a\0b", "text": "a"}, "NUL"),
        ({"id": "a", "text": "a\0b"}, "NUL character in text"),
        ({"id": "a", "text": "a", "n": "\0"}, "NUL character in n"),
        ({"id": "r0", "text": "a"}, "an id that another row has"),
    ],
)
def test_rows_that_postgresql_cannot_hold_are_named(write, tiny_bert, tmp_path, row, said, ask):
    path = rows_of(tmp_path / "rows.jsonl", [{"id": "r0", "text": "b", "n": "b"}])
    write(path, "-m", tiny_bert)
    rows_of(path, [{"id": "r0", "text": "new", "n": "b"}, row])
    assert said in write(path, "-m", tiny_bert, check=2)
    assert ask("SELECT text FROM corpus") == [("b",)]


ODD = ["\x01 \x1b[0m", "\x7f\ttab\r", "it's", 'say "no"', "C:\\temp", "'] or id not in ['", "two\nlines", "{0}", "%s"]


def test_ids_may_hold_any_sign(write, find, tiny_bert, tmp_path):
    keys = [*ODD, "b" * 2600]
    path = rows_of(tmp_path / "odd.jsonl", [{"id": key, "text": f"the cat {i}"} for i, key in enumerate(keys)])
    assert write(path, "-m", tiny_bert)["written"] == len(keys)
    assert write(path, "-m", tiny_bert)["unchanged"] == len(keys)
    assert ids(find()) == set(keys)
    assert ids(find("--where", f"text = 'the cat 0' and id <> '{ODD[1]}'")) == {ODD[0]}
    rows_of(path, [{"id": key, "text": f"the cat {i}"} for i, key in enumerate(keys[4:])])
    pruned = write(path, "-m", tiny_bert, "--prune")
    assert (pruned["deleted"], pruned["rows"]) == (4, len(keys) - 4)


def test_a_table_before_of_another_program_is_left_alone(invoke, write, corpus, tiny_bert, tiny_roberta, ask, postgres):
    write(corpus, "-m", tiny_bert)
    ask("CREATE TABLE corpus__before AS SELECT 1 AS n")
    said = invoke("migrate", postgres, "-m", tiny_roberta, "--anyway", check=2).stderr
    assert "not made by sentcli" in said
    assert ask("SELECT n FROM corpus__before") == [(1,)]
