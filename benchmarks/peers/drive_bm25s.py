"""bm25s with the English Snowball stemmer and its English stop words: what keyword search is without anything else."""

import bm25s
import Stemmer
from serve import serve

stemmer = Stemmer.Stemmer("english")
held: dict = {}


def words(texts):
    return bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False)


def take(group, texts):
    index = bm25s.BM25()
    index.index(words([row["text"] for row in texts]), show_progress=False)
    held[group] = [row["id"] for row in texts], index
    return 0


def ask(group, text, k, _project):
    ids, index = held[group]
    places, scores = index.retrieve(words([text]), k=min(k, len(ids)), show_progress=False)
    return [ids[place] for place, score in zip(places[0], scores[0], strict=True) if score > 0]


serve(take, ask)
