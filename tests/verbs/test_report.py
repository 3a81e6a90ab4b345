"""`sentcli report`: formats, groups and names of what it prints, and what it refuses."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.pages.conftest import make

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.slow
def test_writes_all_formats(invoke, write, tmp_path):
    targets = [tmp_path / "new" / name for name in ("a.html", "b.md", "c.TEX")]
    options = [part for target in targets for part in ("-o", target)]
    done = invoke("report", *write(make("a"), [make("b"), make("c")]), *options, "--title", "T & T", check=0)
    assert done.stdout == "" and "wrote" in done.stderr
    html, markdown, latex = (target.read_text("utf-8") for target in targets)
    assert "<title>T &amp; T</title>" in html
    assert "# T \\& T" in markdown and "| b |" in markdown
    assert r"\section*{T \& T}" in latex
    assert not list(tmp_path.glob("new/.*"))


def test_groups_names_and_marks(invoke, write, tmp_path):
    files = write(make("runs/seed-1"), make("runs/seed-2", scores={"STS16": 80.99, "STSBenchmark": 80.0}), make("m"))
    out = tmp_path / "a.md"
    invoke("report", *files, "-o", out, "--group", "ours=seed-*", "--name", "theirs=2.json", "--no-bold", check=0)
    assert "| ours | 2 | 79.99 ± 1.41 |" in out.read_text("utf-8")
    assert "| theirs | 1 | 78.99 |" in out.read_text("utf-8")
    assert "**79.99" not in out.read_text("utf-8")


def test_an_output_that_exists_is_an_error(invoke, write, tmp_path):
    files = write(make())
    out = tmp_path / "a.md"
    out.write_text("mine")
    assert re.search(f"{out} .*--overwrite", invoke("report", *files, "-o", out, check=2).stderr)
    assert out.read_text() == "mine"
    invoke("report", *files, "-o", out, "--overwrite", "-q", check=0)
    assert out.read_text("utf-8").startswith("# Evaluation of minilm")


def test_wrong_usage(invoke, write, tmp_path):
    (file,) = write(make())
    failed = invoke("report", file, "-o", tmp_path / "a.pdf", check=2)
    assert re.search(r"a\.pdf.*\.html, \.md, \.tex", failed.stderr)
    named = file.rename(tmp_path / "a.md")
    assert f"-o {named} " in invoke("report", named, "-o", named, "--overwrite", check=2).stderr
    file.write_text('{"command": "sts-')
    done = invoke("report", file, "-o", tmp_path / "b.html", check=2)
    assert "0.json, line 1" in done.stderr.replace("\n", "") and not (tmp_path / "b.html").exists()


@pytest.mark.slow
def test_the_options_that_errors_of_models_name_are_there(invoke, tiny_bert, tmp_path):
    """A table whose column has another name, and a device that is not there."""
    (tmp_path / "own.csv").write_text("title,x\n" + "".join(f"the cat sat {'on ' * i},b\n" for i in range(12)))
    options = ["report", tiny_bert, "--texts", tmp_path / "own.csv", "-o", tmp_path / "a.md"]
    failed = " ".join(invoke(*options, check=2).stderr.split())
    assert re.search(r"own\.csv, line 2.*'text'.*title, x.*--text-field", failed)
    options += ["--text-field", "title"]
    invoke(*options, check=0)
    assert "# Report" in (tmp_path / "a.md").read_text("utf-8")
    other_device = ["--overwrite", "--rerun", "--device", "cuda:9", "--backend", "torch"]
    assert "cuda:9" in invoke(*options, *other_device, check=2).stderr
    invoke(*options, *other_device, "--allow-cpu-fallback", check=0)


@pytest.fixture
def runs(tmp_path):
    """Two runs with a dev set of their own, one of them unfinished."""
    for name, scores in (("first", [0.5, 0.8612]), ("second", [0.5, 0.75])):
        (tmp_path / name).mkdir()
        lines = [{"step": 4 * i, "dev_average_precision": score, "best": True} for i, score in enumerate(scores)]
        lines.insert(1, {"step": 1, "loss": 2.0, "contrastive": 2.0, "learning_rate": 1e-5, "grad_norm": 1.0})
        (tmp_path / name / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    dev = {
        "name": "dev.csv",
        "metric": "average_precision",
        "start": 0.5,
        "best": 0.8612,
        "best_step": 4,
        "final": 0.8612,
    }
    (tmp_path / "first" / "sentcli.json").write_text(json.dumps({"results": {"dev": dev, "best_step": 4, "steps": 4}}))
    return tmp_path / "first", tmp_path / "second"


@pytest.mark.slow
def test_runs_with_a_dev_set_of_their_own_are_drawn_and_summed_up(invoke, runs, tmp_path):
    invoke("report", runs[1], "-o", tmp_path / "a.md", "-o", tmp_path / "a.html", check=0)
    page = (tmp_path / "a.md").read_text("utf-8")
    summary = page.split("Made by")[0]
    assert "second" in summary and "0.7500" in summary and "average precision" in summary
    assert "Spearman × 100" not in page and "| 0.7500 |" in page
    drawn = next(tmp_path.rglob("training-curves.csv")).read_text().splitlines()
    assert drawn[0] == "panel,series,x,y,sd,runs,low,high"
    assert [line.split(",")[1:6] for line in drawn[1:]] == [
        ["second", "0", "0.5", "", "1"],
        ["second", "4", "0.75", "", "1"],
    ]
    html = (tmp_path / "a.html").read_text("utf-8")
    assert "<svg" in html.split("While training")[1].split("</figure>")[0]
    (told,) = re.findall(r'<script type="application/json" id="points">(.*?)</script>', html, re.DOTALL)
    assert list(json.loads(told)) == re.findall(r'<figure id="figure-(\d+)"', html), "every figure tells its points"
    assert ".edge.on::after" in html and 'classList.toggle("on"' in html, "a table says where it goes on at the side"


@pytest.fixture
def pairs(tmp_path):
    rows = ["the cat sat\ta dog ran\t1", "a small bird flew\ta bird flew\t4", "the fish swam\tthe fish swam\t5"]
    words = "man woman child river house tree mat".split()
    rows += [f"the {word} is old\ta {word} was {word}\t{number / 2}" for number, word in enumerate(words)]
    (tmp_path / "own.tsv").write_text("\n".join(["sentence1\tsentence2\tscore", *rows]) + "\n")
    return tmp_path / "own.tsv"


@pytest.mark.slow
def test_sts_eval_writes_pages(invoke, pairs, tiny_bert, tiny_roberta, tmp_path):
    """The same as `report` makes of the JSON, but for the name of the file."""
    out, again, json = tmp_path / "a.html", tmp_path / "again.html", tmp_path / "a.json"
    out.write_text("old")
    models = ["-m", tiny_bert, "-m", tiny_roberta]
    invoke(
        "sts-eval", *models, "--pairs", pairs, "--json", json, "--report", out, "--report", tmp_path / "a.tex", check=0
    )
    invoke("report", json, "-o", again, check=0)
    assert out.read_text("utf-8") == again.read_text("utf-8")
    assert "Differences between models" in out.read_text("utf-8")
    assert r"\toprule" in (tmp_path / "a.tex").read_text("utf-8")


def test_groups_are_compared_from_the_files_of_the_commands(invoke, pairs, tiny_bert, tiny_roberta, tmp_path):
    """The files hold the samples, so that groups are compared without a model."""
    options = ["--pairs", pairs, "--json", tmp_path / "seeds.json"]
    models = [part for pooling in ("bert", "roberta") for part in ("-m", tmp_path / pooling)]
    for name, folder in (("bert", tiny_bert), ("roberta", tiny_roberta)):
        (tmp_path / name).symlink_to(folder)
    invoke("sts-eval", *models, *options, check=0)
    out = tmp_path / "a.md"
    invoke("report", tmp_path / "seeds.json", "-o", out, "--group", "one=bert", "--group", "two=roberta", check=0)
    text = out.read_text("utf-8")
    assert "| two | 1, 1 | own |" in text and "difference of mean scores from one" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--report", "a.pdf"], r"a\.pdf.*\.html, \.md, \.tex"),
        (["--report", "a.md", "--report", "./a.md"], r"--report.*a\.md"),
        (["--json", "a.md", "--report", "a.md"], r"--report.*a\.md"),
        (["--report", "folder.md"], r"folder\.md"),
    ],
)
def test_a_page_that_cannot_be_written_stops_before_the_work(invoke, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.md").mkdir()
    done = invoke("sts-eval", "-m", "there-is-no-such-model", "--data", tmp_path, *options, check=2)
    assert re.search(message, " ".join(done.stderr.split()))


@pytest.fixture
def browse(tmp_path):
    """Load a page in a browser without a network; returns the document after its scripts, and what it asked for."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")

    def call(path):
        log = tmp_path / "net.json"
        done = subprocess.run(
            [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom", "--virtual-time-budget=2000",
             "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={tmp_path / 'profile'}",
             f"--log-net-log={log}", "--enable-logging=stderr", path.as_uri()],
            capture_output=True, text=True, timeout=120, env={**os.environ, "HOME": str(tmp_path)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        asked = set(re.findall(r'"url":"(https?://[^/"]*)', log.read_text("utf-8", "replace")))
        own = re.compile(r"(google(apis)?\.com|gvt1\.com|gstatic\.com)$")  # what the browser itself asks for
        return done.stdout, done.stderr, {url for url in asked if not own.search(url)}

    return call


def test_the_page_in_a_browser(invoke, write, tmp_path, browse):
    """The script runs under the page's own policy, sorts, and nothing is asked for."""
    out = tmp_path / "a.html"
    objects = [
        make("b<script>", scores={"STS16": 9.5}),
        make("a", scores={"STS16": 80.0}),
        make("c", scores={"STS16": None}),
    ]
    invoke("report", *write(*objects), "-o", out, check=0)
    text = out.read_text("utf-8")
    dom, said, asked = browse(out)
    assert "Content Security Policy" not in said and "Uncaught" not in said and asked == set()
    assert dom.count('<button type="button">') > 5 and 'aria-sort="none"' in dom

    policy = re.search(r"<meta http-equiv=[^>]*>", text)[0]
    (tmp_path / "bare.html").write_text(text.replace(policy, ""), "utf-8")
    assert browse(tmp_path / "bare.html")[2] == set()  # not only because its policy would forbid it
    image = '<img src="http://127.0.0.1:9/x.png"></main>'
    (tmp_path / "foreign.html").write_text(text.replace("</main>", image).replace(policy, ""), "utf-8")
    assert browse(tmp_path / "foreign.html")[2] == {"http://127.0.0.1:9"}  # the test would see it
    (tmp_path / "foreign.html").write_text(text.replace("</main>", image), "utf-8")
    _, said, asked = browse(tmp_path / "foreign.html")
    assert "Content Security Policy" in said and asked == set()

    def order(clicks):
        """The models after some clicks on heads of the first table, run in place of a user's hand."""
        import base64
        import hashlib

        script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)[1]
        more = "".join(f'document.querySelectorAll("th button")[{i}].click();' for i in clicks)
        digest = lambda code: base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()  # noqa: E731
        page = tmp_path / "clicked.html"
        page.write_text(text.replace(script, script + more).replace(digest(script), digest(script + more)), "utf-8")
        found = re.search(r"<table.*?</table>", browse(page)[0], re.DOTALL)[0]
        return re.findall(r'<th scope="row"[^>]*>([^<]*)', found), re.findall(r'aria-sort="(\w+)"', found)

    assert order([]) == (["b&lt;script&gt;", "a", "c"], ["none", "none"])
    assert order([1]) == (["a", "b&lt;script&gt;", "c"], ["none", "descending"])
    assert order([1, 1]) == (["b&lt;script&gt;", "a", "c"], ["none", "ascending"])
    assert order([1, 0]) == (["a", "b&lt;script&gt;", "c"], ["ascending", "none"])


def test_scores_alone_are_one_table_for_another_document(invoke, write, tmp_path):
    files = write(make("/home/me/runs/a"), make("/home/me/runs/b"))
    targets = [tmp_path / "table.tex", tmp_path / "table.md"]
    invoke("report", *files, *(part for t in targets for part in ("-o", t)), "--only", "scores", check=0)
    latex, markdown = (target.read_text("utf-8") for target in targets)
    assert latex.count(r"\begin{table}") == 1 and r"\section" not in latex and r"\subsection" not in latex
    assert "| STS16 |" in markdown and "#" not in markdown
    for text in (latex, markdown):
        assert "/home" not in text and "sentcli" not in text and "78.99" in text
    run = tmp_path / "run"
    run.mkdir()
    (run / "metrics.jsonl").write_text('{"step": 0, "dev_spearman": 50.0}\n')
    assert "--only scores" in invoke("report", run, "-o", tmp_path / "x.tex", "--only", "scores", check=2).stderr


def test_a_sweep_is_its_table(invoke, tmp_path):
    kept = Path(__file__).parents[2] / "docs" / "results" / "first-sweep.jsonl"
    folder = tmp_path / "rates"
    folder.mkdir()
    shutil.copy(kept, folder / "results.jsonl")
    pages = []
    for name, given in (("a.md", folder), ("b.md", folder / "results.jsonl")):
        invoke("report", given, "-o", tmp_path / name, check=0)
        pages.append((tmp_path / name).read_text("utf-8"))
    assert pages[0] == pages[1]
    assert "Study rates" in pages[0] and "| simcse | 6e-05 |" in pages[0]
    done = invoke("report", folder, "-o", tmp_path / "c.tex", "--only", "scores", "--json", "-", check=0)
    assert (tmp_path / "c.tex").read_text("utf-8").count("85.09") == 2
    assert [point["point"] for point in json.loads(done.stdout)["results"]["sweeps"]["rates"]][:1] == [
        {"method": "is-bert", "learning_rate": 1e-05}
    ]
    (folder / "results.jsonl").write_text('{"a": 1}\n')
    failed = invoke("report", folder, "-o", tmp_path / "d.md", check=2)
    assert re.search(r"results\.jsonl, line 1: not a record of a run", failed.stderr)
