"""miCSE (Klein and Nabi, ACL 2023): the attention of two views must agree, not their vectors alone.

L = InfoNCE with a queue of past vectors (eq. 2) - lambda x the mutual information of attention slices (eq. 4, 5). The
queue of 384 is filled by a momentum encoder (m = 0.995, dropout 0.3) through the online head (sec. 3.1).

Where paper and code differ (the code has no queue; ESimCSE's, which it credits, gives order and form):
    InfoNCE   a sum without the positive in the denominator (eq. 2, unbounded, so that it warns); mean cross-entropy
              (code, default)                              --set contrastive.denominator=other-view (or own-view)
    draw      multinomial (eq. 3); without replacement (code)                     --set ami.replacement=true
    layers    "8 to 12" in the text, 8 to 11 in the recipes: the four before the last    --set ami.layers=8:12
    slices    one head in layers l and l + 2 (code, default); two adjacent heads (paper) --set ami.slicing=head-pairs
    log       -ln(1 - rho^2) / 2 (eq. 4, code); without ln (eq. 9, algorithm 1)          --set ami.log=false
    scale     times the squared share of common positions (code)                  --set ami.scale_by_share=false
    padding   rows of padded queries are in (code), and padding in the share      --set ami.real_queries=true
    no queue  SimCSE + AMI, what the published code runs                          --set contrastive.queue_size=0
The recipe micse-paper has all of the paper's text at once.
"""

from sentcli.methods.method import Method, Settings
from sentcli.objectives import AttentionMI, Contrastive

METHOD = Method(
    name="micse",
    title="miCSE (Klein and Nabi, ACL 2023)",
    objectives={
        "contrastive": Contrastive(  # eq. 2
            temperature=0.05, queue_size=384, momentum=0.995, momentum_dropout=0.3
        ),  # tau, |Q|, m and the dropout: sec. 3.1
        "ami": AttentionMI(  # L_D, eq. 5
            weight=2.5e-3,  # lambda on all data, sec. 3.1; recipes hold the low-shot ones
            layers="auto",
            slicing="layer-pairs",
            samples=150,  # positions a slice, code
        ),
    },
    settings=Settings(  # sec. 3.1
        batch_size=50, learning_rate=3e-5, epochs=1, max_length=32, warmup_steps=250, eval_every=500
    ),
)
