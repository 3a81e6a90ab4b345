"""PromptBERT (Jiang et al., EMNLP 2022): a sentence stands in a template, and the state at [MASK] is its vector.

Two templates make the two views. In training the vector of the template alone, with its words at the positions that
they have around the sentence, is subtracted from each vector (template denoising); a head follows, and InfoNCE as
SimCSE. In encoding there is the first template, and neither denoising nor head.

Settings of the authors' code (``run.sh unsup-bert``), and what can be chosen:
    templates  the script encodes with the first, and its untrained scores are those of the second
    denoise    both templates, with gradients and dropout; the code's dev scores have it, its test scores do not
                                                                       --set template.denoise=false
    positions  of the template as around the sentence (code); its option to keep them together is not here
    length     32 tokens of the sentence; max_length counts the 10 of the template and [CLS] and [SEP], too
    full stop  the code's test puts one behind a sentence without an end; not here

``--stage untrained`` is the template on the start model as it is.
"""

from sentcli.methods.heads import MLPHead, NoHead
from sentcli.methods.method import Method, Settings
from sentcli.methods.modules import PoolingOnly, Template
from sentcli.objectives import Contrastive

UNTRAINED = Method(
    name="prompt-bert",
    title="PromptBERT's template without training (Jiang et al., EMNLP 2022)",
    head=NoHead(),
    template=Template(first='This sentence : "[X]" means [MASK].', second=""),  # run.sh bert-prompt
    fit=PoolingOnly(),
)

METHOD = Method(
    name="prompt-bert",
    title="PromptBERT, unsupervised (Jiang et al., EMNLP 2022)",
    objectives={"contrastive": Contrastive(temperature=0.05)},  # run.sh
    head=MLPHead(),  # mlp_only_train
    template=Template(
        first='This sentence of "[X]" means [MASK].', second='This sentence : "[X]" means [MASK].', denoise=True
    ),
    settings=Settings(batch_size=256, learning_rate=1e-5, epochs=1, max_length=42),  # run.sh; 32 + 10
    stages={"untrained": UNTRAINED},
)
