"""Writes tasks.jsonl: small Python functions to write, each with its tests in one of the forms that the grader reads, and a solution that the
simulated engine can say. python3 generate.py > tasks.jsonl"""
import json

tasks = [
    ("even-sum", "Write a Python function even_sum(xs) that returns the sum of the even numbers in a list.",
     "def even_sum(xs):\n    return sum(x for x in xs if x % 2 == 0)",
     {"test_list": ["assert even_sum([1, 2, 3, 4]) == 6", "assert even_sum([]) == 0", "assert even_sum([-2, 5]) == -2"]}),
    ("initials", "Write a Python function initials(name) that returns the initials of a name in capitals.",
     "def initials(name):\n    return ''.join(w[0].upper() for w in name.split())",
     {"test_list": ["assert initials('ada lovelace') == 'AL'", "assert initials('Alan M Turing') == 'AMT'", "assert initials('') == ''"]}),
    ("sort-in-place", "Write a Python function order(xs) that sorts a list in place by absolute value and returns nothing.",
     "def order(xs):\n    xs.sort(key=abs)",
     {"entry_point": "order", "test": "def check(candidate):\n    xs = [3, -1, -2]\n    assert candidate(xs) is None\n    assert xs == [-1, -2, 3]\n"
      "    import random\n    for n in range(5):\n        ys = [random.randint(-50, 50) for _ in range(n)]\n        want = sorted(ys, key=abs)\n"
      "        candidate(ys)\n        assert ys == want\n"}),
    ("root", "Write a Python function root(x) that returns the square root of x, to six digits.",
     "def root(x):\n    return x ** 0.5",
     {"entry_point": "root", "test": "def check(candidate):\n    assert abs(candidate(2) - 1.414214) < 1e-6\n    assert abs(candidate(0)) < 1e-9\n"}),
    ("refuse", "Write a Python function age(n) that returns n, and raises ValueError where n is negative.",
     "def age(n):\n    if n < 0:\n        raise ValueError(n)\n    return n",
     {"entry_point": "age", "test": "def check(candidate):\n    assert candidate(7) == 7\n    try:\n        candidate(-1)\n"
      "        assert False, 'a negative age'\n    except ValueError:\n        pass\n"}),
    ("count-words", "Write a Python function count_words(text) that returns how often each word occurs, as a dict.",
     "def count_words(text):\n    counts = {}\n    for w in text.split():\n        counts[w] = counts.get(w, 0) + 1\n    return counts",
     {"fn_name": "count_words", "inputs": [["a b a"], [""], ["x"]], "outputs": [{"a": 2, "b": 1}, {}, {"x": 1}]}),
    ("rotate", "Write a Python function rotate(xs, k) that returns a list rotated by k places to the right.",
     "def rotate(xs, k):\n    k %= len(xs) or 1\n    return xs[-k:] + xs[:-k] if k else xs[:]",
     {"fn_name": "rotate", "inputs": [[[1, 2, 3], 1], [[1, 2, 3], 3], [[], 5]], "outputs": [[3, 1, 2], [1, 2, 3], []]}),
    ("total", "Write a Python program that reads numbers from its input, one a line, and prints their sum.",
     "import sys\nprint(sum(int(line) for line in sys.stdin if line.strip()))",
     {"inputs": ["1\n2\n3\n", "", "-4\n4\n"], "outputs": ["6\n", "0\n", "0\n"]}),
    ("two-parts", "Write a Python program that reads a number n of 2 or more and prints two positive whole numbers on one line that add up to n. Any such two will do.",
     "n = int(input())\nprint(n - 1, 1)",
     {"inputs": ["2\n", "7\n", "100\n"], "outputs": ["1 1\n", "3 4\n", "50 50\n"],
      "checker": "def check(input, expected, output):\n    a, b = map(int, output.split())\n    return a > 0 and b > 0 and a + b == int(input)\n"}),
]

for name, prompt, code, tests in tasks:
    print(json.dumps({"id": name, "question": prompt + " Answer with one block of code.", "code": code, **tests}))
