"""Training methods by name. A method is data plus objectives."""

from sentcli.errors import InputError, nearest
from sentcli.methods.baselines import FIRST_LAST_AVG, MLM, STS_REGRESSION, WHITENING
from sentcli.methods.configure import configure
from sentcli.methods.contrastive_tension import CT
from sentcli.methods.infocse import INFOCSE
from sentcli.methods.informin_cl import INFORMIN_CL
from sentcli.methods.is_bert import IS_BERT
from sentcli.methods.method import Method
from sentcli.methods.micse import MICSE
from sentcli.methods.mirror_bert import MIRROR_BERT
from sentcli.methods.simcse import SIMCSE
from sentcli.methods.whitenedcse import WHITENEDCSE

__all__ = ["METHODS", "Method", "configure", "get_method"]

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        SIMCSE, INFORMIN_CL, MICSE, INFOCSE, IS_BERT, WHITENEDCSE, CT, MIRROR_BERT, MLM, WHITENING, FIRST_LAST_AVG,
        STS_REGRESSION,
    )
}  # fmt: skip


def get_method(name: str, stage: str | None = None) -> Method:
    """Return a method with the paper's settings.

    Raises:
        InputError: for an unknown name or stage.
    """
    if name not in METHODS:
        raise InputError(f"unknown method {name!r}{nearest(name, list(METHODS))}; one of: {', '.join(METHODS)}")
    method = METHODS[name]
    if stage is None:
        return method
    if stage not in method.stages:
        known = ", ".join(method.stages) or "none"
        raise InputError(
            f"--stage {stage}: {name} has no such stage{nearest(stage, list(method.stages))}; it has: {known}"
        )
    return method.stages[stage]
