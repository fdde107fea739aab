"""A function: the shorter the better, with credit for each turn."""


def grade(case):
    words = len(case["text"].split())
    score = 1 / (1 + words / 50)
    return {"score": score, "raw": words, "turns": [score] * len(case["turns"])}
