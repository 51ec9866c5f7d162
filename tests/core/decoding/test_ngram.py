"""The n-gram store against counting by hand, ``.trie`` files, and broken files."""

import json
import random
import struct
from itertools import product
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, PreTrainedTokenizerFast

from core.errors import UserError
from core.ngram import BuildOptions, NgramStore, build_store, lookup, lookup_each, read_trie
from core.ngram.documents import read_documents, text_files
from core.ngram.store import MAX_VOCABULARY, TENSORS, count_limit
from tests.helpers.ngram_reference import count_grams, probabilities, store_of, trie_bytes

TEXT = [[1, 2, 3, 1, 2], [5], [], [1, 2], [1, 2, 3, 9, 0, 9, 9, 9, 9]]
BLOCKS = (1, 5, 23, 1 << 20)  # tokens counted at once


def grams(store):
    """Every gram of a store with its count, by walking the arrays as documented."""
    bits, large = int(store.arrays.shape[1]), dict(zip(*store.arrays[:2], strict=True))
    levels = (store.arrays.unigrams, store.arrays.bigrams, store.arrays.trigrams)
    starts = (store.arrays.bigram_starts, store.arrays.trigram_starts)
    found = {}

    def walk(prefix, level, low, high):
        siblings = [divmod(int(word), 1 << bits) for word in levels[level][low:high]]
        tokens = [token for token, _ in siblings]
        assert tokens == sorted(set(tokens)), "siblings are sorted and differ"
        for at, (token, count) in enumerate(siblings, low):
            gram = (*prefix, token)
            found[gram] = int(large.get(sum(store.sizes[:level]) + at, count))
            if level < 2:
                walk(gram, level + 1, *map(int, starts[level][at : at + 2]))

    walk((), 0, 0, store.sizes[0])
    return found


def same(one, other):
    """Whether two stores hold the same arrays."""
    return all(np.array_equal(a, b) for a, b in zip(one.arrays, other.arrays, strict=True))


@st.composite
def corpora(draw):
    """(vocabulary, documents): few different tokens, both ends of the vocabulary among them."""
    vocabulary = draw(st.sampled_from([1, 2, 3, 256, 49_152, 70_000, 151_936, MAX_VOCABULARY]))
    ends = [0, vocabulary - 1, vocabulary // 2, min(vocabulary - 1, 65_536)]
    tokens = st.sampled_from(ends) | st.integers(0, min(vocabulary - 1, 9))
    return vocabulary, draw(st.lists(st.lists(tokens, max_size=25), max_size=8))


# ── building ─────────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=50)
@given(corpora(), st.integers(1, 3))
def test_counts_are_those_counted_by_hand_whatever_the_blocks(tmp_path_factory, corpus, rare):
    vocabulary, documents = corpus
    folder = tmp_path_factory.mktemp("built")
    expected = count_grams(documents, rare)
    files = []
    for block in BLOCKS:
        path = folder / f"{block}.safetensors"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("core.ngram.build._BLOCK", block)
            store = build_store(documents, path, vocabulary, BuildOptions(rare))
        files.append(path.read_bytes())
    assert len(set(files)) == 1
    assert grams(store) == expected
    assert same(store, store_of(expected, vocabulary))
    assert store.nodes == len(expected) and store.vocabulary == vocabulary
    assert store.tokens == sum(map(len, documents))


def test_documents_may_be_of_any_integer_type(tmp_path):
    expected = count_grams(TEXT)
    kinds = [tuple, lambda d: np.array(d, np.uint16), lambda d: np.array(d, np.int64)]
    for number, kind in enumerate(kinds):
        path = tmp_path / f"{number}.safetensors"
        assert grams(build_store(map(kind, TEXT), path, 10)) == expected


@pytest.mark.parametrize("vocabulary", [MAX_VOCABULARY, 151_936])
@pytest.mark.parametrize("beyond", [-2, -1, 0, 1, 2, 3, 1000])
def test_large_counts_are_exact(tmp_path, vocabulary, beyond):
    """Around the count that marks a large node, on all three levels at once."""
    times = count_limit(vocabulary) + beyond
    last = vocabulary - 1
    documents = [[last] * times, [3, 4, last] * (times + 1)]
    store = build_store(documents, tmp_path / "a.safetensors", vocabulary)
    expected = count_grams(documents)
    assert grams(store) == expected
    assert len(store.arrays.large_nodes) == sum(
        n >= count_limit(vocabulary) for n in expected.values()
    )
    counts = np.empty(2, np.int64)
    assert lookup(store.arrays, last, last, np.array([last, 3]), counts) == (2, times - 1)
    assert counts.tolist() == [times - 2, 0]


def test_a_store_is_small_and_has_its_metadata(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "a.safetensors"
    options = BuildOptions(tokenizer="0123abcd", sources="a.txt, ü\n\x1b[31m")
    store = build_store([rng.integers(0, 3_000, 40_000)], path, 49_152, options)
    assert path.stat().st_size <= 8 * store.nodes
    again = NgramStore.open(path)
    assert again.metadata == store.metadata
    assert again.metadata["sources"] == options.sources
    assert (again.metadata["tokenizer"], again.tokens) == ("0123abcd", 40_000)
    assert not any(array.flags.owndata or array.flags.writeable for array in again.arrays[:-1])


@pytest.mark.parametrize("document", [[-1], [10], [2**40], [2**70], [1.0], ["a"], [[1]], [True]])
def test_an_invalid_document_is_refused(tmp_path, document):
    with pytest.raises(UserError, match="document 2 "):
        build_store([[1, 2], document], tmp_path / "a.safetensors", 10)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("vocabulary", [0, -1, MAX_VOCABULARY + 1])
def test_an_impossible_vocabulary_is_refused(tmp_path, vocabulary):
    with pytest.raises(UserError, match="vocabulary"):
        build_store([], tmp_path / "a.safetensors", vocabulary)
    with pytest.raises(UserError, match="vocabulary"):
        NgramStore.empty(vocabulary)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, UserError])
def test_an_error_midway_leaves_everything_as_it_was(tmp_path, monkeypatch, error):
    path = tmp_path / "a.safetensors"
    build_store(TEXT, path, 10)
    before = path.read_bytes()

    def documents():
        yield [1, 2, 3] * 50
        raise error("now")

    def now(*_):
        raise error("now")

    with pytest.raises(error):
        build_store(documents(), path, 10)
    monkeypatch.setattr("core.ngram.build.file_header", now)
    with pytest.raises(error):
        build_store(TEXT, path, 10)
    assert list(tmp_path.iterdir()) == [path] and path.read_bytes() == before


def test_an_impossible_path_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "no" / "a.safetensors", tmp_path / "file" / "a.safetensors"):
        with pytest.raises(UserError, match="folder"):
            build_store(TEXT, path, 10)


def test_a_full_disk_is_an_error(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("core.ngram.build.file_header", full)
    with pytest.raises(UserError, match="No space left"):
        build_store(TEXT, tmp_path / "a.safetensors", 10)
    assert list(tmp_path.iterdir()) == []


# ── looking up ───────────────────────────────────────────────────────────────────────────────────


@numba.njit(cache=True)
def from_numba(arrays, contexts, tokens, counts):
    """Another compiled function calls ``lookup``: (length, count) of every context."""
    found = np.empty((len(contexts), 2), np.int64)
    for row in range(len(contexts)):
        before, last = contexts[row]
        found[row] = np.array(lookup(arrays, before, last, tokens, counts[row]))
    return found


def expected_lookup(counts, before, last, tokens):
    """(length, count, counts) by the definition."""
    for context in ((before, last), (last,)):
        if counts.get(context, 0) > 0:
            return len(context), counts[context], [counts.get((*context, t), 0) for t in tokens]
    return 0, 0, [0] * len(tokens)


@settings(max_examples=40)
@given(corpora(), st.integers(1, 2))
def test_lookup_is_the_definition(tmp_path_factory, corpus, rare):
    vocabulary, documents = corpus
    path = tmp_path_factory.mktemp("looked") / "a.safetensors"
    store = build_store(documents, path, vocabulary, BuildOptions(rare))
    counted = count_grams(documents, rare)
    odd = [-1, -(2**62), vocabulary, vocabulary + 1, 2**21, 2**32, 2**62]
    seen = sorted({t for document in documents for t in document})
    tokens = [*odd, *seen, 0, vocabulary - 1]
    pairs = {pair for pair in counted if len(pair) == 2}
    contexts = sorted(pairs | {(a, b) for a in [*odd, *seen[:4]] for b in tokens})
    counts = np.full((len(contexts), len(tokens)), -7, np.int64)
    wanted = np.array(tokens)
    found = from_numba(store.arrays, np.array(contexts), wanted, counts)
    for row, (before, last) in enumerate(contexts):
        length, count, each = expected_lookup(counted, before, last, tokens)
        assert (*found[row], *counts[row]) == (length, count, *each)
    assert same_each(store, counted, contexts[::5], wanted)


def same_each(store, counted, contexts, tokens):
    """Whether ``lookup_each`` takes every token after the longest context it was seen after."""
    out = np.full((3, len(tokens)), -7, np.int64)
    for before, last in contexts:
        lookup_each(store.arrays, before, last, tokens, *out)
        for k, token in enumerate(tokens.tolist()):
            fitting = [c for c in ((before, last), (last,)) if counted.get((*c, token), 0)]
            expected = [0, 0, 0]
            if fitting:
                context = fitting[0]
                expected = [counted[(*context, token)], counted[context], len(context)]
            assert out[:, k].tolist() == expected
    return True


def test_the_empty_store(tmp_path):
    built = build_store([], tmp_path / "a.safetensors", 49_152)
    for store in (NgramStore.empty(), NgramStore.empty(49_152), built):
        assert (store.nodes, store.sizes, store.tokens) == (0, (0, 0, 0), 0)
        assert probabilities(store, [0, 0], np.arange(3)) == [0, 0, 0]
    assert same(built, NgramStore.empty(49_152))


# ── the released format ──────────────────────────────────────────────────────────────────────────


@settings(max_examples=50)
@given(corpora(), st.integers(0, 2**32))
def test_a_trie_gives_the_store_of_its_counts_in_any_order(tmp_path_factory, corpus, seed):
    vocabulary, documents = corpus
    folder, rng = tmp_path_factory.mktemp("tries"), random.Random(seed)
    trie, built, converted = (folder / name for name in ("a.trie", "a.st", "b.st"))
    counts = count_grams(documents)
    trie.write_bytes(trie_bytes(counts))
    store = build_store(documents, built, vocabulary)
    assert same(read_trie(trie, converted, vocabulary), store)
    assert converted.read_bytes() == built.read_bytes()
    order = list(counts)
    rng.shuffle(order)
    # The root's own fields have no meaning: a pruned file has a negative count there.
    trie.write_bytes(trie_bytes(counts, [(), *order], rng, root=(-1, 2**64 - 1, -5)))
    largest = max((t for document in documents for t in document), default=0)
    assert same(read_trie(trie, converted), store_of(counts, largest + 1))


ODD = {(1,): 5, (1, 2): 9, (1, 2, 3): 0, (2,): 0, (2, 2): 0, (7,): 2**31 - 1}


def test_a_tries_counts_are_taken_as_stored(tmp_path):
    """Pruning as it was released leaves nodes counted 0 times, and sums that do not add up."""
    (tmp_path / "a.trie").write_bytes(trie_bytes(ODD, root=(0, 0, 2**31 - 1)))
    store = read_trie(tmp_path / "a.trie", tmp_path / "a.safetensors", 8)
    assert grams(store) == ODD
    counts = np.empty(1, np.int64)
    assert lookup(store.arrays, 2, 2, np.array([2]), counts) == (0, 0)  # counted 0 times: unknown
    assert lookup(store.arrays, 2, 1, np.array([2]), counts) == (1, 5) and counts[0] == 9
    pruned = read_trie(
        tmp_path / "a.trie", tmp_path / "p.safetensors", 8, BuildOptions(min_count=2)
    )
    assert set(grams(pruned)) == set(ODD) - {(1, 2, 3)}


GOOD = trie_bytes(count_grams(TEXT))


def patched(at, kind, value, whole=GOOD):
    return whole[:at] + struct.pack(kind, value) + whole[at + struct.calcsize(kind) :]


BROKEN = {
    "empty": b"",
    "three bytes": b"abc",
    "nodes huge": patched(8, "<Q", 2**64 - 1),
    "children huge": patched(16 + 16, "<Q", 2**64 - 1),
    "trailing bytes": GOOD + b"\0\0",
    "trailing words": GOOD + b"\0" * 8,
    "noise": random.Random(0).randbytes(4_000),
    "text": b"No trie at all, but a text of some length. " * 9,
}


def two_alike():
    """Two nodes for one gram, each listed once and where it belongs."""
    made = struct.pack("<QQ", 3, 3) + struct.pack("<iQiQiQiQ", 0, 0, 2, 2, 4, 1, 4, 2)
    return made + struct.pack("<iQiQ", 4, 0, 1, 0) * 2


def too_deep():
    made = struct.pack("<QQ", 3, 5)
    for node in range(5):
        made += struct.pack("<iQiQ", 4, max(node - 1, 0), 1, int(node < 4))
        made += struct.pack("<iQ", 4, node + 1) if node < 4 else b""
    return made


def circle():
    """Two nodes that list each other, away from the root."""
    made = struct.pack("<QQ", 3, 3) + struct.pack("<iQiQ", 0, 0, 2, 0)
    for other in (2, 1):
        made += struct.pack("<iQiQiQ", 4, other, 1, 1, 4, other)
    return made


BROKEN |= {"two alike": two_alike(), "too deep": too_deep(), "a circle": circle()}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_trie_is_one_sentence_and_no_file(tmp_path, content):
    path = tmp_path / "a.trie"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"a\.trie") as error:
        read_trie(path, tmp_path / "a.safetensors")
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == [path]


def test_a_trie_cut_off_anywhere_is_refused(tmp_path):
    path = tmp_path / "a.trie"
    for size in range(0, len(GOOD), 5):
        path.write_bytes(GOOD[:size])
        with pytest.raises(UserError, match=r"a\.trie"):
            read_trie(path, tmp_path / "a.safetensors")
    assert list(tmp_path.iterdir()) == [path]


def test_a_trie_that_is_not_there_or_too_wide(tmp_path):
    out = tmp_path / "a.safetensors"
    with pytest.raises(UserError, match="no file"):
        read_trie(tmp_path / "none.trie", out)
    with pytest.raises(UserError, match="cannot be read"):
        read_trie(tmp_path, out)
    (tmp_path / "a.trie").write_bytes(GOOD)
    with pytest.raises(UserError, match="vocabulary"):
        read_trie(tmp_path / "a.trie", out, 9)  # TEXT's largest token is 9
    assert grams(read_trie(tmp_path / "a.trie", out, 10)) == count_grams(TEXT)


def test_a_trie_with_any_word_changed_is_refused_unless_it_is_a_count(tmp_path):
    path, expected = tmp_path / "a.trie", count_grams(TEXT).keys()
    for at, value in product(range(0, len(GOOD), 4), (0, 1, 2, 2**31 - 1, 2**31, 2**32 - 1)):
        path.write_bytes(patched(at, "<I", value))
        try:
            store = read_trie(path, tmp_path / "a.safetensors")
        except UserError as error:
            assert "a.trie" in str(error) and "\n" not in str(error)
            continue
        found = grams(store)
        assert found.keys() == expected and min(found.values()) >= 0  # or of the root's own fields


# ── broken stores ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def whole_file(tmp_path_factory):
    """The bytes of a store with large counts."""
    path = tmp_path_factory.mktemp("whole") / "a.safetensors"
    build_store([[1] * 3_000, [2, 1, 4] * 40], path, MAX_VOCABULARY)
    return path.read_bytes()


def header_of(content):
    return json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])


def with_header(content, change):
    """The file with its header changed in place: ``change`` gets the header's dict."""
    size = int.from_bytes(content[:8], "little")
    header = header_of(content)
    change(header)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


def metadata(**changes):
    return lambda header: header["__metadata__"].update(changes)


def unequal(header):
    """One word moves from the trigrams to the bigrams: contiguous still, but of other lengths."""
    bigrams, trigrams = header["bigrams"], header["trigrams"]
    bigrams["shape"][0] += 1
    trigrams["shape"][0] -= 1
    bigrams["data_offsets"][1] += 4
    trigrams["data_offsets"][0] += 4


def retyped(header):
    header["unigrams"]["dtype"] = "I32"


def reshaped(header):
    header["bigrams"]["shape"] = [1, *header["bigrams"]["shape"]]


def renamed(header):
    header["bigram"] = header.pop("bigrams")


def no_metadata(header):
    del header["__metadata__"]


def no_tokens(header):
    del header["__metadata__"]["tokens"]


HEADERS = {
    "format": metadata(format="pt"),
    "version": metadata(version="2"),
    "order": metadata(order="4"),
    "vocabulary": metadata(vocabulary="0"),
    "vocabulary word": metadata(vocabulary="many"),
    "vocabulary other": metadata(vocabulary="49152"),
    "bits": metadata(token_bits="16"),
    "tokens below 0": metadata(tokens="-1"),
    "no tokens": no_tokens,
    "no metadata": no_metadata,
    "lengths": unequal,
    "type": retyped,
    "shape": reshaped,
    "name": renamed,
}


@pytest.mark.parametrize("change", HEADERS.values(), ids=HEADERS.keys())
def test_a_store_that_contradicts_itself_is_refused(tmp_path, whole_file, change):
    path = tmp_path / "a.safetensors"
    path.write_bytes(with_header(whole_file, change))
    with pytest.raises(UserError, match=r"a\.safetensors"):
        NgramStore.open(path)


def test_rewriting_the_header_is_harmless(tmp_path, whole_file):
    path = tmp_path / "a.safetensors"
    path.write_bytes(with_header(whole_file, lambda header: None))
    assert probabilities(NgramStore.open(path), [1, 1], [1]) == [2998 / 2999]


def test_a_store_cut_off_anywhere_is_refused(tmp_path, whole_file):
    path = tmp_path / "a.safetensors"
    for size in [*range(0, len(whole_file), 7), len(whole_file) - 1]:
        path.write_bytes(whole_file[:size])
        with pytest.raises(UserError, match=r"a\.safetensors"):
            NgramStore.open(path)
    path.write_bytes(whole_file + b"\0" * 4)
    with pytest.raises(UserError, match=r"a\.safetensors"):
        NgramStore.open(path)


def test_other_files_are_not_a_store(tmp_path):
    path = tmp_path / "a.safetensors"
    save_file({"weight": np.zeros((2, 2), np.float32)}, path)
    with pytest.raises(UserError, match="not an n-gram store"):
        NgramStore.open(path)
    for content in (b"", b"text", bytes(100), random.Random(1).randbytes(1000)):
        path.write_bytes(content)
        with pytest.raises(UserError, match="not an n-gram store"):
            NgramStore.open(path)
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(UserError):
            NgramStore.open(missing)


def test_lookup_is_safe_for_damaged_arrays(tmp_path, whole_file):
    """Answers may be wrong, but no memory outside the arrays is read."""
    header = header_of(whole_file)
    begin = 8 + int.from_bytes(whole_file[:8], "little")
    rng = np.random.default_rng(0)
    for _ in range(40):
        data = np.frombuffer(whole_file[begin:], np.uint8).copy()
        noise = rng.integers(0, 256, len(data)).astype(np.uint8)
        data[:] = np.where(rng.random(len(data)) < rng.random(), noise, data)
        for name in ("bigram_starts", "trigram_starts"):  # what opening checks
            low, high = header[name]["data_offsets"]
            for at in (low, high - 4):
                data[at : at + 4] = np.frombuffer(whole_file[begin + at : begin + at + 4], np.uint8)
        path = tmp_path / "a.safetensors"
        path.write_bytes(whole_file[:begin] + data.tobytes())
        store = NgramStore.open(path)
        known = store.arrays.unigrams.astype(np.int64) >> int(store.arrays.shape[1])
        for before in (1, *known.tolist()):
            for last in (1, 2, *known.tolist()):
                probabilities(store, [before, last], [1, 2, 4, 5])


def test_the_tensors_are_in_the_order_of_the_arrays():
    assert list(TENSORS) == list(NgramStore.empty().arrays._fields)[:-1]


# ── documents and the command ────────────────────────────────────────────────────────────────────


def codes(texts):
    """A tokenizer of bytes."""
    return [list(text.encode()) for text in texts]


def read(*files):
    return [list(map(int, document)) for document in read_documents(files, codes)]


def test_json_lines_give_ids_or_every_text(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [
        {"prompt": "ab", "answer": "c <<1+1=2>>2", "n": 3},
        {"tokens": [7, 8], "text": "no"},
        {"ids": []},
        {"tokens": ["no", "ids"], "text": "\ud800é"},
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    ids, *texts = read(path)
    assert ids == [7, 8]
    assert [bytes(text).decode() for text in texts] == ["ab", "c 2", "\ufffdé"]


def test_many_lines_are_all_read(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": str(n)}) + "\n" for n in range(700)))
    assert [bytes(text).decode() for text in read(path)] == [str(n) for n in range(700)]


@pytest.mark.parametrize("line", ["[1]", "{", '{"n": 1}', '{"tokens": [true]}', "\\udcff", "1" * 9])
def test_a_line_without_a_document_is_named(tmp_path, line):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n' + line)
    with pytest.raises(UserError, match=r"a\.jsonl, line 2 "):
        read(path)


def test_text_is_one_document_a_file_however_long(tmp_path, monkeypatch):
    monkeypatch.setattr("core.ngram.documents._PIECE", 10)
    path = tmp_path / "a.md"
    path.write_bytes("\ufeffone\nzwölf\n\nthree lines".encode())
    seen = []
    (document,) = read_documents([path], codes, seen.append)
    assert bytes(document.tolist()).decode() == "one\nzwölf\n\nthree lines"
    assert sum(seen) == path.stat().st_size - 3
    path.write_bytes(b"a\xff")
    with pytest.raises(UserError, match=r"a\.md is not UTF-8"):
        read(path)


def test_a_folder_is_the_text_below_it(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / ".git").mkdir()
    for name, content in (
        ("b/z.py", b"x = 1"),
        ("a.txt", "grün".encode()),
        ("b/image", b"\x89PNG\0\0"),
        ("b/latin", b"gr\xfcn"),
        ("b/cut", b"gr\xc3"),
        (".git/config", b"text"),
        (".hidden", b"text"),
    ):
        (tmp_path / name).write_bytes(content)
    assert text_files([tmp_path]) == [tmp_path / "a.txt", tmp_path / "b" / "z.py"]
    assert text_files([tmp_path / "b" / "latin"]) == [tmp_path / "b" / "latin"]
    for path in (tmp_path / "none", tmp_path / ".git" / "no"):
        with pytest.raises(UserError, match="no file"):
            text_files([path])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no text file"):
        text_files([tmp_path / "empty"])


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A folder with a tokenizer of bytes and a config with more ids than it has; no weights."""
    folder = tmp_path_factory.mktemp("model")
    vocabulary = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocabulary | {"<end>": 256}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")
    fast.save_pretrained(folder)
    LlamaConfig(vocab_size=300).save_pretrained(folder)
    return folder


def test_the_command_counts_text_and_converts_a_trie(call, model, tmp_path):
    texts, ids = tmp_path / "texts", tmp_path / "c.jsonl"
    texts.mkdir()
    (texts / "a.txt").write_text("abab<end>ab")
    (texts / "b.jsonl").write_text(json.dumps({"prompt": "ab", "answer": "ba"}))
    ids.write_text(json.dumps({"tokens": [299, 299]}))
    out, trie, back = (tmp_path / name for name in ("s.safetensors", "s.trie", "back.safetensors"))
    code, shown, err = call("model", "ngram", "--out", out, texts, ids, "--model", model)
    assert code == 0, err
    store = NgramStore.open(out)
    a, b = PreTrainedTokenizerFast.from_pretrained(model)("ab").input_ids
    assert probabilities(store, [a], [b]) == [4 / 5]
    assert probabilities(store, [256], [a]) == [0]  # text that spells <end> is text
    assert store.vocabulary == 300 and store.tokens == 11 + 4 + 2
    assert len(store.metadata["tokenizer"]) == 16
    assert store.metadata["sources"] == "texts, c.jsonl"
    assert shown.startswith(f"{out}: {store.nodes:,} nodes, {out.stat().st_size:,} bytes, ")
    assert shown.endswith("17 tokens counted\n")
    trie.write_bytes(trie_bytes(grams(store)))
    assert call("model", "ngram", "--out", back, trie, "--model", model)[0] == 0
    assert same(NgramStore.open(back), store)
    assert NgramStore.open(back).metadata["tokenizer"] == store.metadata["tokenizer"]
    assert (
        call("model", "ngram", "--out", out, trie, "--min-count", 3)[0] == 0
    )  # a store is replaced by a store
    assert NgramStore.open(out).sizes[2] < store.sizes[2]


BAD = {
    "no file": ("{out}",),
    "not there": ("{out}", "/nowhere.txt"),
    "no suffix": ("{tmp}/out", "{text}"),
    "would overwrite text": ("{text}", "{text}"),
    "would overwrite a model": ("{tmp}/weights.safetensors", "{text}"),
    "folder of OUT": ("/nowhere/at/all.safetensors", "{text}"),
    "OUT is a folder": ("{tmp}/folder.safetensors", "{text}"),
    "read and written": ("{store}", "{store}"),
    "store to store": ("{out}", "{store}", "--model", "{model}"),
    "trie with others": ("{out}", "{tmp}/a.trie", "{text}"),
    "trie broken": ("{out}", "{tmp}/a.trie"),
    "min-count 0": ("{out}", "{text}", "--min-count", "0"),
    "model missing": ("{out}", "{text}", "--model", "/nowhere/at/all"),
    "model empty": ("{out}", "{text}", "--model", "{tmp}/folder.safetensors"),
    "nothing inside": ("{out}", "{tmp}/nothing.txt", "--model", "{model}"),
    "token too large": ("{out}", "{tmp}/large.jsonl", "--model", "{model}"),
    "a .trie is not written": ("{tmp}/x.trie", "{text}"),
    "not text": ("{out}", "{tmp}/latin.txt", "--model", "{model}"),
}


@pytest.mark.parametrize("words", BAD.values(), ids=BAD.keys())
def test_bad_input_is_an_error_and_changes_nothing(call, model, tmp_path, words):
    (tmp_path / "text.txt").write_text("some text")
    (tmp_path / "latin.txt").write_bytes(b"gr\xfcn")
    (tmp_path / "nothing.txt").touch()
    (tmp_path / "a.trie").write_bytes(b"no trie")
    (tmp_path / "folder.safetensors").mkdir()
    (tmp_path / "large.jsonl").write_text('{"tokens": [300]}')
    save_file({"weight": np.zeros(3, np.float32)}, tmp_path / "weights.safetensors")
    build_store(TEXT, tmp_path / "store.safetensors", 10)
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.iterdir()}
    places = {"{out}": tmp_path / "out.safetensors", "{text}": tmp_path / "text.txt"}
    places |= {"{store}": tmp_path / "store.safetensors", "{tmp}": tmp_path, "{model}": model}
    filled = []
    for word in words:
        for mark, place in places.items():
            word = word.replace(mark, str(place))
        filled.append(word)
    code, out, err = call("model", "ngram", "--out", *filled)
    assert (code, out) == (2, ""), err
    assert err.splitlines()[-1].startswith("draftscope: ") and "Traceback" not in err
    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.iterdir()} == before


def test_ctrl_c_leaves_no_file(call, model, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("some text " * 50)

    def pressed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("core.ngram.build.file_header", pressed)
    code, _, err = call(
        "model", "ngram", "--out", tmp_path / "a.safetensors", tmp_path / "a.txt", "--model", model
    )
    assert code == 130 and err.splitlines()[-1] == "draftscope: stopped"
    assert list(tmp_path.iterdir()) == [tmp_path / "a.txt"]
