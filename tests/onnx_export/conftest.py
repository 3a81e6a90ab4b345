import pytest

from tests.onnx_export.models import save_model


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """Folders of random encoders by their kind, written once."""
    written = {}

    def folder(kind):
        if kind not in written:
            written[kind] = save_model(tmp_path_factory.mktemp("random") / kind, kind)
        return written[kind]

    return folder
