"""Conversations that the model is trained and measured with.

A conversation is a list of (role, text); texts of the assistant are what is
learned. Every kind has one function that draws a conversation from a random
generator; nothing is read from outside.
"""

import collections
import itertools
import random
import re

import topics

ANIMALS = "fox bear cat dog owl mouse horse rabbit duck frog hen wolf goat bee crow".split()
THINGS = "lamp key map boat bell book hat drum kite clock ring box ladder mirror stone".split()
PLACES = "forest village harbor garden mountain river market tower valley bridge island meadow".split()
NAMES = "Anna Ben Clara David Emma Frank Greta Henry Ida Jonas Karin Leo Mara Nils Olga Paul Rosa Simon Tina Uwe Vera Walter Yara Zeno".split()
CITIES = "Berlin Paris London Rome Madrid Vienna Oslo Prague Lisbon Dublin Athens Warsaw Cairo Tokyo Delhi Lima Boston Toronto Sydney Nairobi".split()
COLORS = "red blue green yellow black white orange purple brown gray pink silver".split()
WORDS = ANIMALS + THINGS + PLACES + "apple bread cup door egg fish gold hand ice juice king leaf moon nest oil plum queen rain salt tree wall year".split()


def variants(pattern):
    """All texts of a pattern in which {a|b} stands for either word."""
    parts = re.split(r"\{([^}]*)\}", pattern)
    options = [p.split("|") if i % 2 else [p] for i, p in enumerate(parts)]
    return ["".join(c) for c in itertools.product(*options)]


def expand():
    """(questions, answer) of every topic, questions in a fixed shuffled order."""
    out = []
    for ways, items in ((topics.WHAT, topics.THINGS), (topics.HOW, topics.TASKS)):
        for name, answer in items:
            out.append(([v % name for w in ways for v in variants(w)], answer))
    out += [(q, a) for q, a in topics.QUESTIONS + topics.TALK]
    shuffled = []
    for i, (questions, answer) in enumerate(out):
        questions = list(questions)
        random.Random(i).shuffle(questions)
        shuffled.append((questions, answer))
    return shuffled


def split():
    """Two lists of (question, answer): for training, and held out (a quarter of each topic)."""
    train, held = [], []
    for questions, answer in expand():
        n = max(1, len(questions) // 4)
        held += [(q, answer) for q in questions[:n]]
        train.append([(q, answer) for q in questions[n:]])
    return train, held


TRAIN, HELD = split()


def knowledge(r):
    return list(r.choice(r.choice(TRAIN)))


def sums(r):
    """Arithmetic on small numbers."""
    kind = r.randrange(6)
    if kind == 0:
        a, b = r.randrange(100), r.randrange(100)
        return [ask(r, "%d + %d" % (a, b), "%d plus %d" % (a, b)), "%d + %d = %d" % (a, b, a + b)]
    if kind == 1:
        a, b = sorted((r.randrange(100), r.randrange(100)), reverse=True)
        return [ask(r, "%d - %d" % (a, b), "%d minus %d" % (a, b)), "%d - %d = %d" % (a, b, a - b)]
    if kind == 2:
        a, b = r.randrange(13), r.randrange(13)
        return [ask(r, "%d * %d" % (a, b), "%d times %d" % (a, b)), "%d * %d = %d" % (a, b, a * b)]
    if kind == 3:
        a, b = r.sample(range(1000), 2)
        return [r.choice(["Which is larger, %d or %d?", "What is more, %d or %d?", "Is %d or %d larger?"]) % (a, b), "%d is larger." % max(a, b)]
    if kind == 4:
        a = r.randrange(999)
        return [r.choice(["What comes after %d?", "Which number follows %d?", "What is the number after %d?"]) % a, "After %d comes %d." % (a, a + 1)]
    a, n = r.randrange(90), r.randrange(3, 9)
    return [r.choice(["Count from %d to %d.", "count from %d to %d"]) % (a, a + n), " ".join(str(a + i) for i in range(n + 1))]


def ask(r, sign, words):
    return r.choice(["What is %s?", "%s", "%s = ?", "Calculate %s.", "How much is %s?", "what is %s", "Please compute %s."]) % r.choice([sign, sign, words])


def lists(r):
    """Repeat, reverse and sort."""
    pool = r.choice([WORDS, "a b c d e f g h i j k l m n o p q r s t u v w x y z".split(), [str(i) for i in range(100)], NAMES])
    items = r.sample(pool, r.randrange(2, 8))
    key = int if items[0].isdigit() else str
    kind = r.randrange(4)
    text = " ".join(items)
    if kind == 0:
        return [r.choice(["Repeat: %s", "Say this again: %s", "Copy: %s", "Repeat after me: %s"]) % text, text]
    if kind == 1:
        return [r.choice(["Reverse: %s", "Turn this around: %s", "Say this backwards: %s", "Reverse the list: %s"]) % text, " ".join(reversed(items))]
    if kind == 2:
        return [r.choice(["Sort: %s", "Sort this: %s", "Put this in order: %s", "Sort the list: %s"]) % text, " ".join(sorted(items, key=key))]
    return [r.choice(["How many words are here: %s", "Count the items: %s", "How long is this list: %s"]) % text, "There are %d." % len(items)]


def story(r):
    animal, friend = r.sample(ANIMALS, 2)
    thing, place, name = r.choice(THINGS), r.choice(PLACES), r.choice(NAMES)
    lines = [
        r.choice(["Once there was a %s called %s who lived in a %s.", "In a small %s lived a %s. Its name was %s.", "There was a %s named %s in the %s."]),
        r.choice(["One day it found an old %s.", "One morning an old %s lay at its door.", "It had always wanted a %s, and one day it found one."]) % thing,
        r.choice(["A %s came by and asked: what is it for?", "Then a %s came and wanted it too.", "It showed it to the %s, who had never seen one."]) % friend,
        r.choice(["They looked at it for a long time and laughed.", "They decided to share it.", "They carried it home together."]),
        r.choice(["Since then the %s and the %s are friends.", "From that day on the %s and the %s met every evening.", "And so the %s and the %s became friends."]) % (animal, friend),
    ]
    if lines[0].startswith("Once"):
        lines[0] %= animal, name, place
    elif lines[0].startswith("In"):
        lines[0] %= place, animal, name
    else:
        lines[0] %= animal, name, place
    how = r.randrange(3)
    if how == 0:
        question = r.choice(["Tell me a story about a %s and a %s.", "A story about a %s and a %s, please.", "Write a short story with a %s and a %s."]) % (animal, friend)
    elif how == 1:
        question = r.choice(["Tell me a story about a %s and a %s.", "Write a story about a %s that finds a %s.", "A short story about a %s and a %s please"]) % (animal, thing)
    else:
        question = r.choice(["Tell me a story about a %s.", "Do you know a story about a %s?", "Write a short story about a %s."]) % animal
    return [question, " ".join(lines)]


class Facts:
    """Facts that a context can hold, each with its question; no two have one question. kind is that of the last one drawn."""

    def __init__(self, r, kinds="door box person phone".split()):
        self.r, self.kinds, self.seen = r, kinds, set()

    def draw(self):
        """(sentence, question, answer) of a new fact; the answer is the sentence."""
        r = self.r
        while True:
            kind = r.choice(self.kinds) if r.random() < 0.4 else self.kinds[0]
            if kind == "door":
                key = str(r.randrange(1, 100) if r.random() < 0.5 else r.randrange(1000))
                fact = "The code of door %s is %04d." % (key, r.randrange(10000))
                question = r.choice(["What is the code of door %s?", "what is the code of door %s", "Tell me the code of door %s.", "Which code has door %s?", "I need the code of door %s."]) % key
            elif kind == "box":
                key = str(r.randrange(1, 300))
                fact = "The color of box %s is %s." % (key, r.choice(COLORS))
                question = r.choice(["What is the color of box %s?", "Which color has box %s?", "What color is box %s?"]) % key
            elif kind == "person":
                key = r.choice(NAMES)
                fact = "%s lives in %s." % (key, r.choice(CITIES))
                question = r.choice(["Where does %s live?", "In which city does %s live?", "where does %s live"]) % key
            else:
                key = r.choice(NAMES)
                fact = "The number of %s is %03d %03d." % (key, r.randrange(1000), r.randrange(1000))
                question = r.choice(["What is the number of %s?", "Which number has %s?", "Tell me the number of %s."]) % key
            if (kind, key) not in self.seen:
                self.seen.add((kind, key))
                self.kind = kind
                return fact, question, fact


def filler(r):
    """A sentence that is no fact."""
    if r.random() < 0.5:
        return r.choice(re.split(r"(?<=[.]) ", story(r)[1]))
    return r.choice(re.split(r"(?<=[.]) ", r.choice(r.choice(TRAIN))[1]))


def recall(r, room, count, questions):
    """A conversation whose context fills about room tokens by count(text), with
    questions about facts in it, nearest and farthest alike."""
    facts, lines, known, used = Facts(r), [], [], 0
    density = r.choice([0.1, 0.3, 0.6, 1.0])
    room -= questions * 34 + 40
    while used < room or not known:
        if not known or r.random() < density:
            fact = facts.draw()
            known.append((facts.kind, *fact[1:]))
            line = fact[0]
        else:
            line = filler(r)
        lines.append(line)
        used += count(" " + line)
    kinds = collections.defaultdict(list)  # the rare kinds are asked for as often as the others
    for kind, *fact in known:
        kinds[kind].append(fact)
    asked = [r.choice(kinds[r.choice(list(kinds))]) for _ in range(questions)]
    sep = r.choice([" ", " ", "\n"])
    intro = r.choice(["", "Remember this. ", "Here are some notes. ", "Read this carefully: ", "Keep this in mind. "])
    text = intro + sep.join(lines)
    out, start = [], 0
    if r.random() < 0.35:
        out.append(("system", text))
    elif r.random() < 0.4:
        out += [("user", text), ("assistant", r.choice(["Noted.", "I will remember it."]))]
    else:
        out += [("user", text + sep + asked[0][0]), ("assistant", asked[0][1])]
        start = 1
    for question, answer in asked[start:]:
        out += [("user", question), ("assistant", answer)]
    return out


def short(r):
    """A conversation of one to four turns of any kind but recall."""
    out = []
    if r.random() < 0.15:
        out.append(("system", r.choice(["You are a helpful assistant.", "You are dynctl-tiny.", "Answer briefly.", "You help people who run models."])))
    for _ in range(r.choice([1, 1, 1, 2, 3, 4])):
        kind = r.random()
        if kind < 0.40:
            q, a = knowledge(r)
        elif kind < 0.70:
            q, a = sums(r)
        elif kind < 0.90:
            q, a = lists(r)
        else:
            q, a = story(r)
        out += [("user", q), ("assistant", a)]
    return out
