"""SimCSE, unsupervised (Gao, Yao and Chen, EMNLP 2021): dropout is the only augmentation.

Each sentence is encoded twice; the two vectors differ by dropout alone. Loss: InfoNCE between them with the other
sentences of the batch as negatives (eq. 4), on z = tanh(W [CLS] + b). W is new, not the pretrained pooler, and the
head is dropped after training: the raw [CLS] vector is the embedding ("MLP in training only").

Where paper and code leave a choice:
    head      mlp (both), none (what InforMin-CL's script does)            --set head=none
    dropout   the backbone's own 0.1                                       --set dropout=0.15
    MLM       an option of the code, weight 0.1, on a separate copy        --set objectives+=mlm
"""

from sentcli.methods.heads import MLPHead
from sentcli.methods.method import Method, Settings
from sentcli.objectives import Contrastive

METHOD = Method(
    name="simcse",
    title="SimCSE, unsupervised (Gao, Yao and Chen, EMNLP 2021)",
    objectives={"contrastive": Contrastive(temperature=0.05)},  # eq. 4
    head=MLPHead(),
    settings=Settings(batch_size=64, learning_rate=3e-5, epochs=1, max_length=32),  # appendix A, BERT-base
)
