"""Distillation: a student learns the vectors of a teacher on plain text (Reimers and Gurevych, EMNLP 2020).

Two terms: the distance of the student's vectors from the teacher's, through a projection that is dropped if their
dimensions differ, and the difference between the similarities that both give within a batch.

    fewer layers   the student is the teacher with some of its layers     --model TEACHER --layers 0,2,4
    similarities   alone: vectors of any dimension, in a space of its own  --set objectives-=vectors
"""

from sentcli.methods.heads import NoHead
from sentcli.methods.method import Method, Settings
from sentcli.methods.views import Copies
from sentcli.objectives import SimilarityDistillation, VectorDistillation

METHOD = Method(
    name="distill",
    title="Distillation of a teacher's vectors and similarities (Reimers and Gurevych, EMNLP 2020)",
    objectives={"vectors": VectorDistillation(), "similarities": SimilarityDistillation()},
    views=Copies(count=1),
    head=NoHead(),
    pooling="mean",
    settings=Settings(batch_size=64, learning_rate=1e-4, epochs=1, max_length=128, warmup_share=0.1, dropout=0.0),
)
"""The values are not from a paper, which trains on translated pairs."""
