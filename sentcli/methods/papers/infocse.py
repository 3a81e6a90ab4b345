"""InfoCSE (Wu et al., EMNLP 2022 Findings): masked words are predicted through the sentence vector.

Stage 2 (the default): SimCSE's InfoNCE plus lambda x the loss of an auxiliary network of two layers. Its input is the
[CLS] vector of the unmasked sentence and the states that a frozen copy of the lower layers gives a masked copy of the
sentence, so that the encoder learns from this loss through [CLS] alone. Stage 1, ``--stage pretrain``, is Condenser's
pretraining (Gao and Callan, EMNLP 2021) of encoder and auxiliary network together; ``--aux-init DIR`` takes its result.
There is no code for stage 1. What the paper leaves open is taken from Condenser's code: the word head is tied to the
word embeddings, the extra layers are new, the warm-up takes 10 % of the steps, and weights decay by 0.01.

Where paper and code differ:
    lambda    1e-5 (table 8, scripts); 0.005 in sec. 4.2 is worse than no auxiliary loss    --set auxiliary-mlm.weight=
    rate      0.4 (table 7, base script); 0.3 in the large script, 15 % in the text         --set auxiliary-mlm.rate=
    settings  learning rate 7e-6, 2 epochs (scripts); 3e-5, 1 epoch (paper)
    head      two layers with batch norm (scripts), not in the paper                        --set head=mlp
    frozen    in evaluation mode (base script), with dropout (large)    --set auxiliary-mlm.frozen_dropout=true
    copies    both views masked (code), one (paper)                     --set auxiliary-mlm.copies=one
    start     the extra layers from stage 1 (paper), the encoder's last two (its "directly using" ablation; default),
              or random, which the published code falls into for a hub id                   --aux-init random
    detach    ablation on STS-B dev: without 84.41, with 85.49          --set auxiliary-mlm.detach=false
    words     stage 1 masks tokens one by one; Condenser's code all tokens of a word together
                                                                        --set condenser-mlm.whole_words=true
    RTD       table 12, DiffCSE's term added                                                --set objectives+=rtd
"""

from sentcli.methods.heads import BatchNormHead, NoHead
from sentcli.methods.method import Method, Settings
from sentcli.methods.views import Copies
from sentcli.objectives import AuxiliaryMLM, CondenserMLM, Contrastive

PRETRAIN = Method(
    name="infocse",
    title="InfoCSE, stage 1: pretraining of encoder and auxiliary network (Wu et al., EMNLP 2022 Findings)",
    objectives={"condenser-mlm": CondenserMLM(rate=0.15, layers=2, init="random", tie=True)},  # one word head for both
    views=Copies(count=1),
    head=NoHead(),
    settings=Settings(
        batch_size=1024,  # paper, on 8 GPUs
        learning_rate=1e-4,  # paper and Condenser
        epochs=8,  # paper and Condenser
        max_length=128,  # not stated
        warmup_share=0.1,  # Condenser
        weight_decay=0.01,  # Condenser
    ),
)

METHOD = Method(
    name="infocse",
    title="InfoCSE (Wu et al., EMNLP 2022 Findings)",
    objectives={
        "contrastive": Contrastive(temperature=0.05),
        "auxiliary-mlm": AuxiliaryMLM(weight=1e-5, rate=0.4, layers=2),  # lambda, table 8; rate, table 7
    },
    head=BatchNormHead(),  # scripts
    settings=Settings(batch_size=64, learning_rate=7e-6, epochs=2, max_length=32),  # scripts
    stages={"pretrain": PRETRAIN},
)
