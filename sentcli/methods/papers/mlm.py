"""Masked language modelling (Devlin et al., NAACL 2019): prepares a model for the other methods, or makes one.

It starts from a checkpoint, or from a folder with a config.json and a tokenizer alone.
"""

from sentcli.methods.heads import NoHead
from sentcli.methods.method import Method, Settings
from sentcli.methods.views import Copies
from sentcli.objectives import MaskedLM

METHOD = Method(
    name="mlm",
    title="Masked language modelling (BERT: Devlin et al., NAACL 2019), from a checkpoint or from a config.json alone",
    objectives={"mlm": MaskedLM(weight=1.0, rate=0.15, tie=True)},  # sec. 3.1, task 1
    views=Copies(count=1),
    head=NoHead(),
    settings=Settings(  # appendix A.2
        batch_size=256, learning_rate=1e-4, epochs=1, max_length=128, warmup_share=0.01, weight_decay=0.01
    ),
)
