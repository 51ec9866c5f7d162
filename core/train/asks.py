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
    "the history of chocolate", "a broken promise", "honey", "learning a language",
    "the periodic table", "a walk in the forest", "credit cards", "migration of birds",
    "a school play", "the Cold War", "cooking for friends", "glaciers", "the internet",
    "an unexpected visitor", "tea", "probability", "a farmer and his son", "the digestive system",
    "homework", "lighthouses", "the Olympic Games", "small businesses",
    "a robot who learns to paint", "vitamins", "deserts", "classical music", "a birthday party",
    "the speed of light", "queues", "good neighbours", "the Aztecs", "weather forecasts",
    "a mountain rescue", "computer games", "tides", "budgeting for a family", "fairy tales",
    "batteries", "a long friendship", "architecture", "electricity", "traffic in big cities",
    "wolves", "ethics", "a lonely astronaut", "houseplants", "the human brain", "board games",
    "a market in Morocco", "ants", "interest rates", "the theatre", "lakes", "first aid",
    "an argument between brothers", "fractions", "magnets", "handwriting", "the Vikings",
    "a picnic", "taxes", "reading aloud", "comets", "bridges",
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
    "What is the history of {}?",
    "Write a haiku about {} and then explain its images.",
    "Act as a journalist and interview someone about {}.",
    "Describe the main stages or parts of {}, one paragraph each.",
    "Write a social media post about {} in a friendly tone, with hashtags.",
    "Discuss how {} affects everyday life, and give two examples.",
    "Write the first paragraph of a novel in which {} plays a part.",
    "What would happen if there were no {}? Argue step by step.",
    "Give three arguments for and three against the statement: \"{} deserves more attention.\"",
    "Write a short review of a film about {}, and rate it from 1 to 5.",
    "List the key words one needs to talk about {} and define each in a sentence.",
    "Return a JSON object with a title, a summary and three tags for an article about {}.",
    "Make a table in Markdown that compares {} and {}.",
    "My friend says that {} is boring. What can I answer?",
    "Write instructions for a class activity on {} that takes twenty minutes.",
    "How would you explain the link between {} and {} to a manager with little time?",
    "Write a thank-you note in which you mention {}.",
    "Name five books or films that deal with {} and say why they are worth it.",
    "What are good habits for somebody who deals with {} every day?",
    "Sort these by importance for a report on {}: causes, costs, people, future. Explain.",
    "Continue this story: \"Nobody had told me about {} before that evening.\"",
    "What do scientists or experts still not know about {}?",
    "Write a limerick about {}.",
    "Give a numbered list of common questions about {} with short answers.",
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
clamp|value: float, low: float, high: float|Keep a value between two bounds.|clamp(12, 0, 10) = 10
pairs_with_sum|numbers: list[int], total: int|Return all pairs of numbers that add up to the total.|pairs_with_sum([1, 2, 3], 4) = [(1, 3)]
spell_digits|n: int|Write a number digit by digit in English words.|spell_digits(42) = "four two"
is_pangram|sentence: str|Check whether a sentence holds every letter of the alphabet.|is_pangram("hello") = False
count_words|text: str|Count how often each word occurs, ignoring case.|count_words("A a b") = {"a": 2, "b": 1}
insert_sorted|items: list, value|Insert a value into a sorted list so that it stays sorted.|insert_sorted([1, 3], 2) = [1, 2, 3]
diagonal|matrix|Return the diagonal of a square matrix.|diagonal([[1, 2], [3, 4]]) = [1, 4]
days_in_month|month: int, year: int|Return how many days a month has.|days_in_month(2, 2024) = 29
bmi|weight: float, height: float|Compute the body mass index, rounded to one decimal.|bmi(80, 2.0) = 20.0
discounted|price: float, percent: float|Return the price after a discount.|discounted(200, 10) = 180.0
replace_all|items: list, old, new|Replace every occurrence of old by new.|replace_all([1, 2, 1], 1, 0) = [0, 2, 0]
is_subset|a: list, b: list|Tell whether every item of a is in b.|is_subset([1], [1, 2]) = True
running_minutes|times: list[str]|Add up times such as "1:30" (minutes and seconds) in seconds.|running_minutes(["1:30", "0:10"]) = 100
pascal_row|n: int|Return row n of Pascal's triangle.|pascal_row(3) = [1, 3, 3, 1]
is_armstrong|n: int|Check if a number equals the sum of its digits, each to the power of their count.|is_armstrong(153) = True
gray_code|n: int|Return the Gray code of an integer.|gray_code(3) = 2
partition|items, keep|Split items into those for which keep is true and all others.|
median|values: list[float]|Return the median of the values.|median([3, 1, 2]) = 2
mode_count|values|Return how often the most frequent value occurs.|mode_count([1, 1, 2]) = 2
strip_comments|code: str|Remove everything behind a # in each line of code.|strip_comments("x + 1 # one") = "x + 1"
parse_csv_line|line: str|Split a line at its commas and strip spaces.|parse_csv_line("a, b") = ["a", "b"]
vowel_ratio|text: str|Return the share of letters that are vowels, 0 for an empty text.|vowel_ratio("aeio") = 1.0
highest_scores|scores: dict, n: int|Return the names with the n highest scores, best first.|highest_scores({"a": 1, "b": 2}, 1) = ["b"]
is_magic_square|square|Check whether all rows and columns of a square have one sum.|is_magic_square([[1, 1], [1, 1]]) = True
acronym|phrase: str|Make an acronym from the first letters of a phrase.|acronym("as soon as possible") = "ASAP"
swap_ends|items: list|Swap the first and the last item of a list.|swap_ends([1, 2, 3]) = [3, 2, 1]
ascii_total|text: str|Add up the ASCII codes of all characters.|ascii_total("ab") = 195
knight_moves|x: int, y: int|Return all squares a knight can reach on a chess board from x, y.|
overlap_length|a: str, b: str|Return how many characters the end of a shares with the start of b.|overlap_length("abc", "bcd") = 2
change|amount: int|Return the fewest coins of 25, 10, 5 and 1 for an amount.|change(30) = 2
depth|text: str|Return how deep the brackets of a text are nested.|depth("((a))") = 2
trim_zeros|digits: list[int]|Remove the zeros at the end of a list.|trim_zeros([1, 0, 0]) = [1]
weekday_name|index: int|Return the name of the weekday with an index from 0 for Monday.|weekday_name(6) = "Sunday"
scale|vector: list[float], factor: float|Multiply every number of a vector by a factor.|scale([1, 2], 3) = [3, 6]
dot|a: list[float], b: list[float]|Return the dot product of two vectors.|dot([1, 2], [3, 4]) = 11
zip_longest_with|a: list, b: list, fill|Pair the items of two lists, filling the shorter one.|zip_longest_with([1, 2], [3], 0) = [(1, 3), (2, 0)]
ordinal|n: int|Return a number with its English ending, such as 1st or 12th.|ordinal(3) = "3rd"
nested_get|data: dict, path: str|Look up a value in nested dictionaries by a path such as "a.b".|nested_get({"a": {"b": 1}}, "a.b") = 1
class_average|grades: dict|Return the average grade of every pupil.|class_average({"Ann": [1, 3]}) = {"Ann": 2.0}
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
