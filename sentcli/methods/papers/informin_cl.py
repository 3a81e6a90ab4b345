"""InforMin-CL (Chen, Zhou, Sun and He, COLING 2022): keep what the views share, drop what they do not.

SimCSE's InfoNCE L_C (eq. 4) plus a reconstruction term L_R: the vector of one view predicts that of the other (eq. 8).
L = L_C + lambda L_R (eq. 9), minimised; there is no reconstruction network and gradients reach both views.

Where paper and code differ:
    form      mean over all entries of unit vectors, both directions (code, default); sum over dimensions of unit or
              raw vectors (eq. 8)                                           --set reconstruction.form=l2-normalized
    lambda    0.4 BERT, 4 RoBERTa (table 3; code 1.0)                       --set reconstruction.weight=4
    head      on in training (paper); the script trains without one         --set head=none
    test      raw [CLS] (paper); the pretrained pooler (README of the code), which a model that was trained without
              a head still has                                              encode with --pooling cls-head
    MLM       beta 0.1, on a separate copy (default), or as the code masks it: in the text that the contrastive term
              sees, too                             --set objectives+=mlm   --set mlm.in_place=true
At 768 dimensions the code's form has a gradient of about 0.5 % of InfoNCE's, eq. 8 on unit vectors twice InfoNCE's.
"""

from sentcli.methods.method import Method, Settings
from sentcli.objectives import Contrastive, Reconstruction

METHOD = Method(
    name="informin-cl",
    title="InforMin-CL (Chen et al., COLING 2022)",
    objectives={
        "contrastive": Contrastive(temperature=0.05),  # L_C, eq. 4, tau inside exp as in eq. 10
        "reconstruction": Reconstruction(weight=0.4, form="mse-normalized"),  # lambda L_R, eq. 8, table 3
    },
    settings=Settings(batch_size=128, learning_rate=3e-5, epochs=1, max_length=32),  # table 3, BERT-base
)
