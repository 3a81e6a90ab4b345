"""WhitenedCSE (Zhuo, Sun, Wang, Zhu and Yang, ACL 2023): whiten the batch in shuffled groups before the loss.

[CLS] -> shuffled group whitening (SGW) -> linear -> tanh. Each shuffle gives another view; InfoNCE with
several positives, each against the first view (eq. 7, every lambda_m = 1).

Where paper and code differ:
    groups     "group size" in table 4 is their number. 384 on BERT-base (paper), 128 (code); default: two columns a
               group. 384 cannot divide BERT-large's 1,024, 512 can          --set head.num_groups=128
    positives  3 views, two positive pairs                                   --set views=4
    views      one encoding, shuffled again (paper); encoded three times (code, default)
                                                                             --set head.views_from=shuffle
    chunks     view by view (paper, default); thirds of the rows (code)      --set head.chunks=thirds
    matrix     no gradient through it (code, default)                        --set head.detach=false
    epsilon    none in either; 1e-5 here                                     --set head.eps=0
    settings   batch 64, rate 3e-5 (paper, default); 128, 1e-5 (code)
    whitening  table 3: without shuffle, or all columns with running statistics (eq. 13)
                                                                             --set head.kind=group|zca|pca
    test       raw [CLS] (what the code selects by); "output of the MLP" in the text: encode with --pooling cls-head
    lambda_m   1 for every view (code, default; not stated in the paper)    --set multi-positive.lambdas=1,0.5
    eq. 8      another form of the loss, which is 37 for views whose eq. 7 is 8e-5; not offered
"""

from sentcli.methods.heads import WhiteningHead
from sentcli.methods.method import Method, Settings
from sentcli.methods.views import Copies
from sentcli.objectives import MultiPositive

METHOD = Method(
    name="whitenedcse",
    title="WhitenedCSE (Zhuo et al., ACL 2023)",
    objectives={"multi-positive": MultiPositive(temperature=0.05)},  # eq. 7
    views=Copies(count=3),  # table 5
    head=WhiteningHead(num_groups=0, kind="shuffled-group"),  # table 4
    settings=Settings(batch_size=64, learning_rate=3e-5, epochs=1, max_length=32),  # batch and rate: paper
)
