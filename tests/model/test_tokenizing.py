"""A tokenizer that its library cannot use is an error that names the model."""

import json
import shutil


def test_a_template_of_tokens_that_are_not_there_names_the_model(invoke, tiny_bert, tmp_path):
    folder = tmp_path / "bert"
    shutil.copytree(tiny_bert, folder)
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text("utf-8"))
    del tokenizer["post_processor"]["special_tokens"]["[CLS]"]
    file.write_text(json.dumps(tokenizer), "utf-8")
    text = tmp_path / "a.txt"
    text.write_text("the cat sat\n")
    for command in (("encode", text, "-o", tmp_path / "a.npy"), ("export", "-o", tmp_path / "e")):
        assert str(folder) in invoke(*command, "-m", folder, check=2).stderr
