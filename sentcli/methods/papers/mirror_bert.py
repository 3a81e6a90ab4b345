"""Mirror-BERT, sentence level (Liu, Vulic, Korhonen and Collier, EMNLP 2021): a masked span is the second view.

View 1 is the text, view 2 the text with five random characters masked; dropout on both. Loss: NT-Xent, in which every
row of both views is an anchor. No head. The mean of the tokens, as for BERT; RoBERTa takes
[CLS]: ``--pooling cls``. miCSE's authors measured 69.81 with the mean and 43.32 with [CLS] on BERT.

Where the authors' code and this one differ:
    mean       over 50 positions with padding (code); over the real tokens here, so that a vector does not depend on
               what a text is padded to
    drophead   heads instead of dropout (scripts): --set dropout=0 --set drop_heads=0.2 (BERT), 0.05 (RoBERTa)
miCSE adds its term to it (its table 2): --set objectives+=ami.
"""

from sentcli.methods.heads import NoHead
from sentcli.methods.method import Method, Settings
from sentcli.methods.views import SpanMask
from sentcli.objectives import NTXent

METHOD = Method(
    name="mirror-bert",
    title="Mirror-BERT (Liu et al., EMNLP 2021)",
    objectives={"nt-xent": NTXent(temperature=0.04)},
    views=SpanMask(span=5),
    head=NoHead(),
    pooling="mean",
    settings=Settings(  # code; 10,000 sentences are 50 steps
        batch_size=200,
        learning_rate=2e-5,
        epochs=1,
        max_length=50,
        schedule="constant",
        weight_decay=0.01,
        decay_all=True,
        clip_norm=0.0,
    ),
)
