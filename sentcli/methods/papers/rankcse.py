"""RankCSE (Liu et al., ACL 2023): SimCSE, whose rankings of a batch agree in both views and follow a teacher's.

L = InfoNCE + beta * consistency + gamma * ranking (eq. 9). Consistency is the Jensen-Shannon divergence between the
softmax of the similarities of view 1 to view 2 and that of view 2 to view 1 (eq. 4). Ranking is ListMLE or ListNet on
the teacher's similarities, of one teacher or of two, weighted by alpha and 1 - alpha (eq. 5 to 8).

    kind       listmle (default), listnet                            --set ranking.kind=listnet
    teachers   --teacher FIRST --teacher SECOND                      --set ranking.share=0.33

The authors published no code; the values are those of the paper and of the community's implementation, which differs:
    consistency  it cuts the logarithm of the mixture at 1e-7, which is above 0, so that its term is minus the mean
                 entropy of the two distributions and not their divergence
    ListMLE      takes each sentence itself as the first of its list; so does this one. It adds 1e-7 before its
                 logarithms, which is more than what the far end of a list has; this one adds nothing
"""

from sentcli.methods.heads import MLPHead
from sentcli.methods.method import Method, Settings
from sentcli.objectives import Contrastive, RankingConsistency, RankingDistillation

METHOD = Method(
    name="rankcse",
    title="RankCSE (Liu et al., ACL 2023)",
    objectives={
        "contrastive": Contrastive(temperature=0.05),
        "consistency": RankingConsistency(temperature=0.05),
        "ranking": RankingDistillation(kind="listmle", temperature=0.05, teacher_temperature=0.025),
    },
    head=MLPHead(),
    settings=Settings(batch_size=128, learning_rate=3e-5, epochs=1, max_length=32),
)
