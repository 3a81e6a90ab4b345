"""Supervised contrastive learning (Khosla et al., NeurIPS 2020): texts of a class are positives of each other.

Each text of a batch is encoded twice; the vectors of all texts of its class are its positives, those of all others its
negatives (eq. 2, the form L_out). Where the paper and text leave a choice:
    views   dropout instead of the augmentation of images, as Gunel et al. (ICLR 2021) do with text
    head    none, since the classes should teach the vector itself; the paper's projection   --set head=mlp
"""

from sentcli.methods.heads import NoHead
from sentcli.methods.method import Method, Settings
from sentcli.methods.views import ClassedCopies
from sentcli.objectives import SupervisedContrastive

METHOD = Method(
    name="supcon",
    title="Supervised contrastive learning (Khosla et al., NeurIPS 2020): texts with classes",
    objectives={"supcon": SupervisedContrastive(temperature=0.1)},  # eq. 2
    views=ClassedCopies(),
    head=NoHead(),
    pooling="own",
    settings=Settings(batch_size=64, learning_rate=2e-5, epochs=3, max_length=128, warmup_share=0.1),
)
