"""How the papers of the methods are cited, as BibTeX."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Citation:
    """A paper, as its publisher lists it."""

    key: str
    title: str
    authors: str
    """The names of the authors, separated by ``and`` as BibTeX has them."""
    where: str
    year: int

    def bibtex(self) -> str:
        """Return the entry for a bibliography."""
        lines = {
            "title": f"{{{self.title}}}",
            "author": self.authors,
            "booktitle": self.where,
            "year": str(self.year),
        }
        fields = ",\n".join(f"  {name} = {{{value}}}" for name, value in lines.items())
        return f"@inproceedings{{{self.key},\n{fields}\n}}"


SBERT = Citation(
    "reimers2019sentencebert",
    "Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks",
    "Nils Reimers and Iryna Gurevych",
    "Proceedings of EMNLP-IJCNLP",
    2019,
)
INFOCSE = Citation(
    "wu2022infocse",
    "InfoCSE: Information-aggregated Contrastive Learning of Sentence Embeddings",
    "Xing Wu and Chaochen Gao and Zijia Lin and Jizhong Han and Zhongyuan Wang and Songlin Hu",
    "Findings of EMNLP",
    2022,
)
PAPERS = {
    "simcse": Citation(
        "gao2021simcse",
        "SimCSE: Simple Contrastive Learning of Sentence Embeddings",
        "Tianyu Gao and Xingcheng Yao and Danqi Chen",
        "Proceedings of EMNLP",
        2021,
    ),
    "informin-cl": Citation(
        "chen2022informin",
        "An Information Minimization Based Contrastive Learning Model for Unsupervised Sentence Embeddings Learning",
        "Shaobin Chen and Jie Zhou and Yuling Sun and Liang He",
        "Proceedings of COLING",
        2022,
    ),
    "micse": Citation(
        "klein2023micse",
        "miCSE: Mutual Information Contrastive Learning for Low-shot Sentence Embeddings",
        "Tassilo Klein and Moin Nabi",
        "Proceedings of ACL",
        2023,
    ),
    "infocse": INFOCSE,
    "is-bert": Citation(
        "zhang2020isbert",
        "An Unsupervised Sentence Embedding Method by Mutual Information Maximization",
        "Yan Zhang and Ruidan He and Zuozhu Liu and Kwan Hui Lim and Lidong Bing",
        "Proceedings of EMNLP",
        2020,
    ),
    "whitenedcse": Citation(
        "zhuo2023whitenedcse",
        "WhitenedCSE: Whitening-based Contrastive Learning of Sentence Embeddings",
        "Wenjie Zhuo and Yifan Sun and Xiaohan Wang and Linchao Zhu and Yi Yang",
        "Proceedings of ACL",
        2023,
    ),
    "esimcse": Citation(
        "wu2022esimcse",
        "ESimCSE: Enhanced Sample Building Method for Contrastive Learning of Unsupervised Sentence Embedding",
        "Xing Wu and Chaochen Gao and Liangjun Zang and Jizhong Han and Zhongyuan Wang and Songlin Hu",
        "Proceedings of COLING",
        2022,
    ),
    "mirror-bert": Citation(
        "liu2021mirrorbert",
        "Fast, Effective, and Self-Supervised: Transforming Masked Language Models into Universal Lexical and "
        "Sentence Encoders",
        "Fangyu Liu and Ivan Vulić and Anna Korhonen and Nigel Collier",
        "Proceedings of EMNLP",
        2021,
    ),
    "distill": Citation(
        "reimers2020multilingual",
        "Making Monolingual Sentence Embeddings Multilingual using Knowledge Distillation",
        "Nils Reimers and Iryna Gurevych",
        "Proceedings of EMNLP",
        2020,
    ),
    "margin-mse": Citation(
        "hofstaetter2020marginmse",
        "Improving Efficient Neural Ranking Models with Cross-Architecture Knowledge Distillation",
        "Sebastian Hofstätter and Sophia Althammer and Michael Schröder and Mete Sertkan and Allan Hanbury",
        "arXiv:2010.02666",
        2020,
    ),
    "rankcse": Citation(
        "liu2023rankcse",
        "RankCSE: Unsupervised Sentence Representations Learning via Learning to Rank",
        "Jiduan Liu and Jiahao Liu and Qifan Wang and Jingang Wang and Wei Wu and Yunsen Xian and Dongyan Zhao and "
        "Kai Chen and Rui Yan",
        "Proceedings of ACL",
        2023,
    ),
    "simcse-plus-plus": Citation(
        "xu2023simcseplusplus",
        "SimCSE++: Improving Contrastive Learning for Sentence Embeddings from Two Perspectives",
        "Jiahao Xu and Wei Shao and Lihui Chen and Lemao Liu",
        "Proceedings of EMNLP",
        2023,
    ),
    "sbert-nli": SBERT,
    "sts-regression": SBERT,
}
"""The papers by the name of the method; of others a card has the title that the method states."""


def citation(method: str) -> str | None:
    """Return the BibTeX of a method's paper, or None where it is not listed."""
    paper = PAPERS.get(method)
    return None if paper is None else paper.bibtex()
