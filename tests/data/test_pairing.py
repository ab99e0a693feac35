"""Which images are paired: every allowed pair has a number, and no other pair has one."""

import itertools
import random

import pytest

from roundtrip.data.pairing import ListedPairing, across_subjects, chosen_pairs, within_subject


def people(seed):
    """The subjects and groups of up to twelve images, in any order."""
    dice = random.Random(seed)
    return [(dice.choice("abcd"), dice.choice("xy")) for _ in range(dice.randrange(13))]


def numbered(pairing):
    return [pairing.pair(number) for number in range(pairing.count)]


@pytest.mark.parametrize("seed", range(20))
def test_across_subjects_are_all_pairs_of_two_subjects_in_one_group(seed):
    images = people(seed)
    found = numbered(across_subjects([s for s, _ in images], [g for _, g in images]))
    allowed = [
        (a, b)
        for a, b in itertools.permutations(range(len(images)), 2)
        if images[a][0] != images[b][0] and images[a][1] == images[b][1]
    ]
    assert sorted(found) == allowed


@pytest.mark.parametrize("seed", range(20))
def test_within_a_subject_are_all_pairs_of_its_images(seed):
    images = people(seed)
    found = numbered(within_subject([s for s, _ in images]))
    allowed = [
        (a, b) for a, b in itertools.permutations(range(len(images)), 2) if images[a][0] == images[b][0]
    ]
    assert sorted(found) == allowed


def test_many_images_are_never_written_out():
    pairing = across_subjects([str(n // 2) for n in range(10_000)])
    assert pairing.count == 10_000 * 9_998
    a, b = pairing.pair(pairing.count - 1)
    assert a // 2 != b // 2


@pytest.mark.parametrize("count", [None, 0, 1, 7, 12, 50])
def test_the_chosen_pairs_differ_and_stay_the_same(count):
    pairing = across_subjects("abcd")
    chosen = chosen_pairs(pairing, count, symmetric=False)
    assert chosen == chosen_pairs(pairing, count, symmetric=False)
    assert len(set(chosen)) == len(chosen) == min(12, 50 if count is None else count)


def test_symmetric_lists_hold_each_pair_both_ways():
    chosen = chosen_pairs(across_subjects("abcdef"), 8, symmetric=True)
    assert len(set(chosen)) == 8
    assert all((b, a) in chosen for a, b in chosen)


def test_a_list_is_taken_as_it_is():
    pairs = ((3, 1), (0, 2), (1, 3))
    assert chosen_pairs(ListedPairing(pairs), None, symmetric=False) == list(pairs)
    assert chosen_pairs(ListedPairing(pairs[:2]), None, symmetric=True) == [(1, 3), (3, 1), (0, 2), (2, 0)]
