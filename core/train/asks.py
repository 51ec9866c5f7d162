"""Prompts to answer, made of lists: what people ask of a small assistant, at no cost of writing.

The target's own synthesised prompts cost as much as short answers, and half of them are of a few
kinds. Here a chat prompt is a task about a topic and a code prompt a small documented function.

A function may ask for what a held-out prompt asks for in other words, which no comparison of words
finds: whoever evaluates on prompts of functions reads the list against them.
"""

from __future__ import annotations

import random
from itertools import product

from core.train.texts import CODE_ASKS, Sample

TOPICS = (
    "climate change", "a rainy afternoon", "the Roman Empire", "learning to swim", "black holes",
    "a lost dog", "healthy breakfasts", "remote work", "the French Revolution", "baking bread",
    "electric cars", "a small village by the sea", "public libraries", "jazz music", "volcanoes",
    "saving money", "a first day at school", "space travel", "the human heart", "chess",
    "photosynthesis", "a broken robot", "social media", "sleep", "the stock market", "bees",
    "a journey by train", "recycling", "ancient Egypt", "running a marathon", "vaccines",
    "a haunted house", "renewable energy", "friendship", "the water cycle", "machine learning",
    "gardening", "an old photograph", "job interviews", "the moon landing", "dinosaurs",
    "a talking cat", "urban planning", "coffee", "the printing press", "stress at work",
    "coral reefs", "a secret letter", "online learning", "football", "the immune system",
    "a summer in the mountains", "inflation", "poetry", "earthquakes", "time management",
    "a brave young inventor", "the silk road", "plastic waste", "playing the piano", "gravity",
    "a visit to Japan", "democracy", "fast food", "the theory of evolution", "camping",
    "a storm at night", "customer service", "whales", "the Industrial Revolution", "meditation",
    "a mysterious island", "computer security", "bicycles", "the ozone layer", "teamwork",
    "a grandmother's kitchen", "artificial intelligence in medicine", "penguins", "the Renaissance",
    "moving to a new city", "a detective in London", "solar panels", "DNA", "museums",
    "a dragon who is afraid of fire", "supply and demand", "public speaking", "rivers",
    "the Great Wall of China", "pets for children", "a spaceship crew", "nutrition", "antibiotics",
)  # fmt: skip

TASKS = (
    "Write a short story about {}.",
    "Write a poem about {}.",
    "Explain {} to a ten-year-old.",
    "Explain {} in simple terms, with an example.",
    "List five interesting facts about {}.",
    "Compose an engaging blog post about {}, with a catchy title.",
    "Write a persuasive email to convince a friend to learn more about {}.",
    "What are the advantages and disadvantages of {}?",
    "Describe a vivid scene that has to do with {}, using sensory details.",
    "Give me three ideas for a presentation about {}.",
    "Write a dialogue between a teacher and a student about {}.",
    "Pretend to be an expert on {}. Introduce yourself and answer a common question.",
    "Summarise what everybody should know about {} in one paragraph.",
    "Draft an outline of an essay about {}.",
    "What are some common misconceptions about {}?",
    "How has our view of {} changed over the last hundred years?",
    "Write a product description for a book about {}.",
    "What questions should I ask someone who knows a lot about {}?",
    "Help me plan a weekend with the theme of {}.",
    "Write a news article about {}.",
    "Why is {} important?",
    "Imagine you are writing a speech on {}. How do you begin?",
    "Compare {} with {}.",
    "How are {} and {} related to each other?",
    "Write a letter to a newspaper in which you give your opinion about {}.",
    "Create a quiz with four questions on {} and give the answers.",
    "Tell me a joke about {} and explain why it is funny.",
    "Suggest a step-by-step plan for a beginner who is interested in {}.",
    "Rewrite the following sentence in a formal tone: \"I really don't get {}, it's weird.\"",
    "Translate into French: \"Yesterday we talked about {} for an hour.\"",
)  # fmt: skip

# name | arguments | what it does | an example of a call = its value
FUNCTIONS = """
count_vowels|text: str|Count the vowels in a text, upper and lower case.|count_vowels("Apple") = 2
reverse_words|sentence|Reverse the order of the words of a sentence.|reverse_words("a b c") = "c b a"
is_leap_year|year: int|Return True if the year is a leap year, False otherwise.|is_leap_year(2000) = True
celsius_to_fahrenheit|c: float|Convert degrees Celsius to Fahrenheit.|celsius_to_fahrenheit(100) = 212.0
second_largest|numbers: list|Return the second largest number of a list, or None if there is none.|second_largest([4, 9, 7]) = 7
remove_punctuation|text|Return the text without punctuation marks.|remove_punctuation("hi, you!") = "hi you"
merge_dicts|a: dict, b: dict|Merge two dictionaries; where both have a key, add the values.|merge_dicts({"x": 1}, {"x": 2}) = {"x": 3}
running_total|numbers|Return a list with the running total of the numbers.|running_total([1, 2, 3]) = [1, 3, 6]
is_anagram|a: str, b: str|Check whether two words are anagrams of each other.|is_anagram("listen", "silent") = True
flatten|nested: list|Flatten a list of lists into one list.|flatten([[1, 2], [3]]) = [1, 2, 3]
longest_word|sentence: str|Find the longest word of a sentence. If several are equally long, return the first.|longest_word("the quick fox") = "quick"
digits_sum|n: int|Add up the digits of a non-negative integer.|digits_sum(305) = 8
caesar|text: str, shift: int|Encrypt a lower-case text by shifting every letter.|caesar("abc", 1) = "bcd"
unique_in_order|items|Return the items without repeats, in the order they first appear.|unique_in_order([3, 1, 3]) = [3, 1]
average|values: list[float]|Return the mean of the values, 0 for an empty list.|average([2, 4]) = 3.0
char_frequency|text|Return a dictionary that counts how often each character occurs.|char_frequency("aab") = {"a": 2, "b": 1}
chunks|items, size|Split a list into pieces of the given size; the last may be shorter.|chunks([1, 2, 3], 2) = [[1, 2], [3]]
title_case|text: str|Make the first letter of every word a capital.|title_case("good day") = "Good Day"
transpose|matrix: list[list[int]]|Swap the rows and columns of a matrix.|transpose([[1, 2], [3, 4]]) = [[1, 3], [2, 4]]
binary_search|items: list, wanted|Return the index of wanted in a sorted list, or -1.|binary_search([1, 3, 5], 3) = 1
power_of_two|n: int|Tell whether n is a power of two.|power_of_two(16) = True
rotate|items: list, k: int|Rotate a list to the right by k places.|rotate([1, 2, 3], 1) = [3, 1, 2]
word_lengths|sentence|Return the lengths of the words of a sentence.|word_lengths("I am here") = [1, 2, 4]
perfect_square|n: int|Return True if n is the square of an integer.|perfect_square(49) = True
common_items|a: list, b: list|Return the items that both lists hold, sorted.|common_items([1, 2], [2, 3]) = [2]
seconds_to_clock|seconds: int|Write a number of seconds as hours:minutes:seconds.|seconds_to_clock(3661) = "1:01:01"
group_by_length|words: list[str]|Group words by their length in a dictionary.|group_by_length(["a", "bb"]) = {1: ["a"], 2: ["bb"]}
every_other|text|Return every other character of a text.|every_other("abcd") = "ac"
max_difference|numbers: list|Return the largest difference between any two numbers.|max_difference([3, 10, 5]) = 7
collatz_steps|n: int|Count the steps of the Collatz sequence until it reaches 1.|collatz_steps(6) = 8
initials|name: str|Return the initials of a full name.|initials("Ada Lovelace") = "A.L."
interleave|a, b|Take items from two lists in turns.|interleave([1, 3], [2, 4]) = [1, 2, 3, 4]
factorial|n: int|Compute the factorial of n.|factorial(5) = 120
least_common_multiple|a: int, b: int|Return the least common multiple of two integers.|least_common_multiple(4, 6) = 12
hamming_distance|a: str, b: str|Count the places where two texts of the same length differ.|hamming_distance("cat", "car") = 1
mask_email|address: str|Hide the part before the @ except its first letter.|mask_email("bob@x.org") = "b**@x.org"
invert|mapping: dict|Swap the keys and values of a dictionary.|invert({"a": 1}) = {1: "a"}
triangle_kind|a, b, c|Say whether a triangle is equilateral, isosceles or scalene.|triangle_kind(2, 2, 3) = "isosceles"
moving_average|values, window|Return the averages of a sliding window.|moving_average([1, 2, 3], 2) = [1.5, 2.5]
count_lines|path: str|Count the lines of a text file that are not empty.|
parse_query|query: str|Turn a query such as a=1&b=2 into a dictionary.|parse_query("a=1&b=2") = {"a": "1", "b": "2"}
roman_value|letter: str|Return the value of one Roman numeral letter.|roman_value("X") = 10
compress|text: str|Write repeated characters as the character and a count.|compress("aaab") = "a3b1"
is_valid_password|password: str|A password is valid with eight characters, a digit and a capital.|is_valid_password("Abcdefg1") = True
shopping_total|prices: dict, basket: list|Add up the prices of the items in a basket.|shopping_total({"tea": 2}, ["tea", "tea"]) = 4
first_missing|numbers: list[int]|Return the smallest positive integer that is not in the list.|first_missing([1, 2, 4]) = 3
grade|score: int|Turn a score from 0 to 100 into a letter from A to F.|grade(91) = "A"
distance|p: tuple, q: tuple|Return the Euclidean distance between two points.|distance((0, 0), (3, 4)) = 5.0
evens_and_odds|numbers|Return two lists, of the even and of the odd numbers.|evens_and_odds([1, 2]) = ([2], [1])
bubble_sort|items: list|Sort a list with bubble sort.|bubble_sort([3, 1, 2]) = [1, 2, 3]
to_snake_case|name: str|Turn a name in camel case into snake case.|to_snake_case("myName") = "my_name"
fizz|n: int|Return the numbers to n, with "fizz" in place of multiples of three.|fizz(3) = [1, 2, "fizz"]
most_common|items: list|Return the item that occurs most often.|most_common([1, 2, 2]) = 2
deep_count|nested|Count the items of a list that may hold further lists.|deep_count([1, [2, 3]]) = 3
temperature_range|readings: dict|Return the lowest and highest reading of a day.|temperature_range({"am": 3, "pm": 9}) = (3, 9)
word_wrap|text: str, width: int|Break a text into lines that are not longer than width.|
matrix_sum|matrix|Add up all the numbers of a matrix.|matrix_sum([[1, 2], [3]]) = 6
""".strip()  # noqa: E501 (one function a line)


def chat_prompts(seed: int = 0) -> list[Sample]:
    """Every task with every topic, in random order; a task of two topics draws the other one."""
    rng = random.Random(seed)
    made = [
        task.format(topic, rng.choice(TOPICS)) if task.count("{}") == 2 else task.format(topic)
        for task, topic in product(TASKS, TOPICS)
    ]
    rng.shuffle(made)
    return [Sample(text) for text in made]


def function_prompts(seed: int = 0) -> list[Sample]:
    """Every function asked for in every form, as a stub or in words, in random order."""
    rng = random.Random(seed)
    made = []
    for line in FUNCTIONS.splitlines():
        name, arguments, does, example = line.split("|")
        stub = f'def {name}({arguments}):\n    """{does}{{}}"""\n'
        call, _, value = example.partition(" = ")
        shown = [stub.format("")]
        if example:
            shown.append(stub.format(f"\n    >>> {call}\n    {value}\n    "))
            shown.append(stub.format(f"\n    Example: {call} == {value}\n    "))
        made += [ask.format(text) for ask, text in product(CODE_ASKS, shown)]
        made.append(f"Write a Python function {name}({arguments}). {does}")
        made.append(f"How can I do this in Python? {does}")
    rng.shuffle(made)
    return [Sample(text) for text in made]
