"""IS-BERT (Zhang et al., EMNLP 2020): a sentence's vector shall know its own tokens from those of other sentences.

Convolutions of widths 1, 3 and 5 over the last layer give local vectors, their mean is the sentence vector.
Loss: the Jensen-Shannon bound on the mutual information of local and global vectors, other sentences of the batch as
negatives (eq. 3). The convolutions are part of the encoder: without them there is no IS-BERT vector.

Where paper and code differ:
    discriminator   a network (paper); the dot product (code, default)      --set jsd.discriminator=mlp (or bilinear)
    ReLU            after the convolutions (paper); none (code, default)    --set cnn.relu=true
    learning rate   1e-6 (paper, default), 2e-6 (code)                      --learning-rate 2e-6
    kernels         3, 5, 7 on AFS                                          --set cnn.kernels=3,5,7
    tokens          mean over all tokens (code, default); mean over sentences of sums (paper, eq. 3)
                                                                            --set jsd.over_tokens=sum
"""

from sentcli.methods.heads import NoHead
from sentcli.methods.method import Method, Settings
from sentcli.methods.modules import CNN
from sentcli.methods.views import Copies
from sentcli.objectives import JensenShannon

METHOD = Method(
    name="is-bert",
    title="IS-BERT (Zhang et al., EMNLP 2020)",
    objectives={"jsd": JensenShannon(discriminator="dot")},  # eq. 3
    views=Copies(count=1),
    head=NoHead(),
    pooling="mean",
    cnn=CNN(kernels=(1, 3, 5), channels=256, relu=False),
    settings=Settings(  # the code's, but for the paper's rate
        batch_size=32,
        learning_rate=1e-6,
        epochs=1,
        max_length=128,
        warmup_share=0.1,
        weight_decay=0.01,
        adam_epsilon=1e-7,
        bias_correction=False,
        eval_every=1000,
    ),
)
