"""ESimCSE (Wu et al., COLING 2022): repeated sub-words change the length of one view, and a queue gives negatives.

View 2 is the sentence with some of its tokens repeated, so that two views of a sentence need not have the same length,
by which SimCSE knows them. Loss: InfoNCE between the views, with the other sentences of the batch and a queue of past
vectors as negatives. The queue is filled by a momentum encoder (m <- 0.995 m + 0.005 online) without dropout, through
the online head. Head and pooling as SimCSE.

Settings of the authors' code (``ESimCSE/run.sh`` for BERT-base), and what can be chosen:
    number     of repeated tokens: uniform below min(10, rate x tokens), so mostly fewer than the rate   --set rate=0.2
    repeated   sub-words ("bpe", the script's choice); the code's other kind, whole words, is not here
    queue      160 vectors, 2.5 batches; BERT-base and -large alike           --set contrastive.queue_size=0
    dropout    0.1, the model's own; 0.15 for RoBERTa-large alone             --set dropout=0.15
    start      of the momentum encoder: a copy of the online one; the published code resets it to random weights by
               mistake                                                        --set contrastive.momentum_init=random
"""

from sentcli.methods.heads import MLPHead
from sentcli.methods.method import Method, Settings
from sentcli.methods.views import WordRepetition
from sentcli.objectives import Contrastive

METHOD = Method(
    name="esimcse",
    title="ESimCSE (Wu et al., COLING 2022)",
    objectives={
        "contrastive": Contrastive(temperature=0.05, queue_size=160, momentum=0.995, momentum_dropout=0.0)  # run.sh
    },
    views=WordRepetition(rate=0.32),  # run.sh: dup_type bpe, dup_rate 0.32
    head=MLPHead(),
    settings=Settings(batch_size=64, learning_rate=3e-5, epochs=1, max_length=32),  # run.sh
)
