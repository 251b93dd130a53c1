"""Limiters that are wrong on purpose, each in one way that real ones are.

Every one is the model with one part replaced, and names the check of the kit that has to notice.
"""

import unicodedata
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from threading import Barrier, BrokenBarrierError

from noria.testing import Model
from noria.testing.model import Charge, History, Rates

SECOND = 1_000_000
WRONG = []


def caught_by(check, promise):
    """The check that has to fail, and how it has to begin to say so."""

    def listed(limiter):
        limiter.caught_by = check
        limiter.broken = promise
        WRONG.append(limiter)
        return limiter

    return listed


class Retold(Model):
    """Decides rightly and reports wrongly."""

    def _decide(self, items, *, charge):
        return self.retell(super()._decide(items, charge=charge))

    def outcome(self, outcome):
        return outcome

    def retell(self, decision):
        outcomes = tuple(map(self.outcome, decision.outcomes))
        if len(outcomes) > 1 or outcomes[0].shadow:
            return replace(decision, outcomes=outcomes)
        told = outcomes[0]
        return replace(
            decision, outcomes=outcomes, remaining=told.remaining, retry_after=told.retry_after
        )


# Races


@caught_by(
    "test_callers_at_once_are_admitted_exactly_to_capacity",
    "C13: callers at once get exactly the capacity",
)
class ChecksThenActs(Model):
    """Reads, decides, and only then writes. Two callers meet in between, for certain."""

    def __init__(self, clock):
        super().__init__(clock)
        self.between = Barrier(2)

    def consume_many(self, items):
        decision = self._decide(items, charge=False)
        if not decision.allowed:
            return decision
        with suppress(BrokenBarrierError):
            self.between.wait(0.2)
        for key, limit, cost in items:
            history = self.read(self.place(key, limit), Rates.of(limit), self.clock())
            self.charge(history, cost, self.clock())
            self.write(self.place(key, limit), history)
        return decision


@caught_by(
    "test_calls_at_once_have_an_order",
    "C13: no order of these calls explains their answers",
)
class ForgetsOneOfTwo(ChecksThenActs):
    """Writes back what it has read before: of two charges at once one is lost."""


# Refunds


@caught_by(
    "test_a_refund_works_once",
    "C9: but once",
)
class RefundsByDecrement(Model):
    """Takes the cost off whatever is there: twice, and below nothing."""

    def _give_back(self, place, name, now):  # noqa: ARG002
        kept = self.histories.get(place)
        if kept is None or name not in kept.given:
            return False
        kept.charges.append(Charge(kept.last, Fraction(-kept.given[name][1])))
        return True


@caught_by(
    "test_a_charge_that_ran_out_is_not_refunded_from_the_next",
    "C9: a charge that has run out cannot be given back",
)
class RefundsTheForgotten(Model):
    """Gives back a charge of a life before, out of the charges of this one."""

    def read(self, place, rates, now):
        history = super().read(place, rates, now)
        before = self.histories.get(place)
        if before is not None:
            history.given = before.given | history.given
        return history


@caught_by(
    "test_a_refund_undoes_its_charge",
    "C9: a refund undoes its charge",
)
class RefundsHalf(Model):
    """Gives back less than was charged where nothing else is charged."""

    def _give_back(self, place, name, now):
        kept = self.histories.get(place)
        given = super()._give_back(place, name, now)
        if given and not kept.weight(kept.last):
            kept.charges.append(Charge(kept.last, Fraction(1)))
        return given


@caught_by(
    "test_many_refunds_are_told_apart",
    "C9: each charge is given back once",
)
class ForgetsRefunds(Model):
    """Remembers the last dozen of what was given back."""

    def __init__(self, clock):
        super().__init__(clock)
        self.done = []

    def _give_back(self, place, name, now):  # noqa: ARG002
        kept = self.histories.get(place)
        if kept is None or name in self.done:
            return False
        self.done = [*self.done[-11:], name]
        kept.charges.append(Charge(kept.last, Fraction(-1)))
        return True


@caught_by(
    "test_a_refund_never_passes_capacity_nor_makes_a_key",
    "C9: nor after a reset",
)
class RefundsIntoNothing(Model):
    """Makes the key anew to hold what is given back."""

    def _give_back(self, place, name, now):
        if place not in self.histories:
            self.histories[place] = History(
                self.was, [Charge(now, Fraction(-1))], now, exists=True, ends=now + 99
            )
            return True
        return super()._give_back(place, name, now)

    def forget(self, place):
        self.was = self.histories[place].rates
        super().forget(place)


# Time


@caught_by(
    "test_a_client_with_a_wrong_clock_is_limited_with_the_others",
    "C10: a client's clock does not matter",
)
class TrustsTheClientsClock(Model):
    """Each client counts by its own clock."""

    @classmethod
    def clients(cls, clock, skews):
        limiters = [cls(lambda skew=skew: clock() + skew) for skew in skews]
        for limiter in limiters:
            limiter.histories = limiters[0].histories
        return limiters


@caught_by(
    "test_a_bucket_gives_all_that_its_rate_pours",
    "C1: a bucket loses nothing of what its rate pours in",
)
class FloorsWhatAccrues(Model):
    """Keeps whole tokens and the time of the last call: the fraction is lost each time."""

    def write(self, place, history):
        if history.rates.algorithm == "token-bucket":
            debt = -(-history.weight(history.last) // 1)
            history.charges = [Charge(history.last, Fraction(debt))]
        super().write(place, history)


@caught_by(
    "test_the_same_call_passes_at_retry_after_and_not_a_tick_earlier",
    "C3: the same call passes at `retry_after`",
)
class ReadsWholeSeconds(Model):
    """Takes the time in whole seconds."""

    def __init__(self, clock):
        super().__init__(lambda: clock() // SECOND * SECOND)


@caught_by(
    "test_a_full_burst_is_back_after_exactly_one_period",
    "C2: a full burst is back after exactly one period",
)
class FloorsTheInterval(Model):
    """Pours one unit every period // N, which is too often for 3 per second."""

    def read(self, place, rates, now):
        if rates.algorithm == "token-bucket" and rates.limit:
            rates = replace(rates, window=max(rates.window // rates.limit, 1) * rates.limit)
        return super().read(place, rates, now)


@caught_by(
    "test_a_clock_that_steps_back_frees_nothing",
    "C10: a clock that steps back frees nothing",
)
class FreesWhatLiesAhead(Model):
    """After a step back, charges that lie ahead do not count."""

    def read(self, place, rates, now):
        history = super().read(place, rates, now)
        tick = now // rates.tick
        if history.last > tick:
            history.last = tick
            history.charges = [one for one in history.charges if one.time <= tick]
        return history


@caught_by(
    "test_a_clock_far_behind_frees_nothing_and_locks_nobody_out",
    "C3: the same call passes at `retry_after`",
)
class NeverGoesBack(Model):
    """Time stands still until the clock has caught up, however far it is behind."""

    def __init__(self, clock):
        super().__init__(self.latest)
        self.now = 0
        self.given_clock = clock

    def latest(self):
        self.now = max(self.now, self.given_clock())
        return self.now


@caught_by(
    "test_any_order_of_timestamps_stays_within_the_bound",
    "C1: no span of time admits more than the bound of a",
)
class FollowsTheClock(FreesWhatLiesAhead):
    """The same, seen from the bound."""


@caught_by(
    "test_what_has_run_out_equals_nothing",
    "C15: what has run out equals nothing",
)
class RemembersWhatRanOut(Model):
    """A record that has run out, and is still there, weighs one unit."""

    def read(self, place, rates, now):
        history = super().read(place, rates, now)
        if place in self.histories and not history.exists and rates.limit > 1:
            history.charge(1, now // rates.tick, -1)
        return history


@caught_by(
    "test_full_capacity_is_back_after_the_lookback",
    "C2: after the look-back the whole capacity is there",
)
class ForgetsTooLate(Model):
    """Charges count a tick longer than the algorithm looks back."""

    def __init__(self, clock):
        self.real = clock
        super().__init__(clock)

    def _decide(self, items, *, charge):
        first = self.place(items[0][0], items[0][1])
        kept = self.histories.get(first)
        if kept and self.real() == kept.ends * kept.rates.tick:
            self.clock = lambda: self.real() - kept.rates.tick
        try:
            return super()._decide(items, charge=charge)
        finally:
            self.clock = self.real


# Denials, looks, figures


@caught_by(
    "test_denied_calls_change_nothing",
    "C4: a denied call changes nothing",
)
class ChargesOnDenial(Model):
    """Records refused calls too, so that whoever retries stays out."""

    def _decide(self, items, *, charge):
        decision = super()._decide(items, charge=charge)
        if charge and not decision.allowed:
            for key, limit, cost in items:
                history = self.read(self.place(key, limit), Rates.of(limit), self.clock())
                self.charge(history, cost, self.clock() // history.rates.tick)
                self.write(self.place(key, limit), history)
        return decision


@caught_by(
    "test_a_peek_says_what_a_call_would_and_changes_nothing",
    "C5: looking changes nothing",
)
class PeeksByCharging(Model):
    """A look is a call."""

    def peek(self, key, *limits, cost=1):
        return self.consume(key, *limits, cost=cost)


@caught_by(
    "test_the_same_call_passes_at_retry_after_and_not_a_tick_earlier",
    "C3: the same call passes at `retry_after`",
)
class RetriesTooEarly(Retold):
    """Off by one tick."""

    def outcome(self, outcome):
        if not outcome.retry_after:
            return outcome
        return replace(outcome, retry_after=outcome.retry_after - 1e-6)


@caught_by(
    "test_the_same_call_passes_at_retry_after_and_not_a_tick_earlier",
    "C3: the same call passes at `retry_after`",
)
class RetriesAtTheWindowsEnd(Retold):
    """Looks no further than the end of the current window."""

    def outcome(self, outcome):
        ends = outcome.window_ends_after
        if not outcome.retry_after or ends is None:
            return outcome
        return replace(outcome, retry_after=ends)


@caught_by(
    "test_a_cost_above_capacity_never_passes_and_takes_nothing",
    "C3: a cost above capacity is denied for ever",
)
class RetriesTheImpossible(Retold):
    """Names a time for what will never pass."""

    def outcome(self, outcome):
        if outcome.allowed or outcome.retry_after is not None:
            return outcome
        return replace(outcome, retry_after=outcome.period, reason="limited")


@caught_by(
    "test_remaining_is_what_passes_now",
    "C6: what remains passes",
)
class RoundsRemainingUp(Retold):
    """Rounds what is used down to whole units, in the caller's favour, when it reports."""

    def _decide(self, items, *, charge):
        self.asked = items
        return super()._decide(items, charge=charge)

    def outcome(self, outcome):
        ((key, limit, *_),) = self.asked
        history = self.read(self.place(key, limit), Rates.of(limit), self.clock())
        at = history.moment(self.clock() // history.rates.tick)
        used = int(history.weight(at))
        return replace(outcome, remaining=max(history.rates.capacity - used, 0))


@caught_by(
    "test_a_fixed_window_ends_at_one_moment_for_everybody",
    "C7: a window's end does not move",
)
class RoundsTheWindowsEnd(Retold):
    """The end of a window is now plus a time to live in coarse units: it wobbles."""

    def outcome(self, outcome):
        ends = round((outcome.window_ends_after or 0) * SECOND)
        return replace(outcome, window_ends_after=-(-ends // 8) * 8 / SECOND)


@caught_by(
    "test_reset_after_and_grows_after_are_exact",
    "no charge weighs after `reset_after`",
)
class ResetsWhenItGrows(Retold):
    """Takes the first unit back for all of them."""

    def outcome(self, outcome):
        return replace(outcome, reset_after=outcome.grows_after)


# Costs


@caught_by(
    "test_a_wrong_cost_is_an_error_and_changes_nothing",
    "C8: cost -1 is an error",
)
class TakesNegativeCosts(Model):
    """A cost below nothing mints quota."""

    def checked_cost(self, cost):
        return cost if type(cost) is int and cost < 0 else super().checked_cost(cost)


@caught_by(
    "test_costs_at_one_moment_add_up",
    "C8: costs at one tick add up",
)
class CollapsesAMoment(Model):
    """Keeps a log as a set of times: calls of one tick are one member."""

    def charge(self, history, cost, now):
        name = super().charge(history, cost, now)
        if history.rates.algorithm == "sliding-window-log":
            last = history.charges[-1]
            twins = [one for one in history.charges[:-1] if one.time == last.time]
            if twins:
                history.charges = [one for one in history.charges if one not in twins]
        return name


@caught_by(
    "test_a_cost_of_nothing_looks",
    "C8: a cost of 0 looks",
)
class RefusesToLook(Model):
    """A cost of nothing is refused where nothing is left."""

    def _decide(self, items, *, charge):
        decision = super()._decide(items, charge=charge)
        if charge and decision.allowed and decision.remaining == 0 and items[0][2] == 0:
            return replace(decision, allowed=False)
        return decision


# Several limits


@caught_by(
    "test_all_limits_are_charged_or_none",
    "C12: a refusal charges none of them",
)
class ChargesTheFirstLimits(Model):
    """Asks one limit after the other: those before the one that refuses are charged."""

    def consume_many(self, items):
        for item in items:
            decision = super().consume_many([item])
            if not decision:
                break
        return decision


@caught_by(
    "test_several_keys_are_charged_together",
    "C12: all keys are charged or none",
)
class ChargesTheFirstKeys(ChargesTheFirstLimits):
    """The same over several keys."""


@caught_by(
    "test_a_decision_is_the_strictest_of_its_limits",
    "C12: the least remaining speaks",
)
class TheFirstSpeaks(Model):
    """Reports its first limit, whichever decided."""

    def _decide(self, items, *, charge):
        decision = super()._decide(items, charge=charge)
        first = decision.outcomes[0]
        return replace(decision, remaining=first.remaining, retry_after=first.retry_after)


@caught_by(
    "test_a_shadow_limit_counts_and_never_denies",
    "C12: nor speaks",
)
class ShadowsSpeak(TheFirstSpeaks):
    """A shadow's figures are shown."""


@caught_by(
    "test_a_limit_given_twice_is_charged_twice_or_denied",
    "C12: and is charged twice",
)
class ChargesALimitOnce(Model):
    """Counts a limit once, however often it was asked."""

    def consume_many(self, items):
        return super().consume_many(list({item[:2]: item for item in items}.values()))


# Keys, records


@caught_by(
    "test_a_key_and_a_limit_do_not_run_together",
    "C11: key and name are kept apart",
)
class JoinsKeyAndName(Model):
    """Joins key and name with a colon."""

    def place(self, key, limit):
        return "", f"{key}:{limit.name}"


@caught_by(
    "test_a_wrong_key_is_an_error",
    "C11: key '' is an error",
)
class LetsTheNamelessPass(Model):
    """Skips the limit where there is no key."""

    def checked_key(self, key):
        return key if key == "" else super().checked_key(key)


@caught_by(
    "test_keys_never_meet",
    "C11: a key is untouched by others",
)
class NormalisesKeys(Model):
    """Takes keys that look alike for one."""

    def place(self, key, limit):
        return super().place(unicodedata.normalize("NFC", key), limit)


@caught_by(
    "test_keys_never_meet",
    "C11: a key is untouched by others",
)
class CutsKeys(Model):
    """Has room for 511 characters."""

    def place(self, key, limit):
        return super().place(key[:511], limit)


@caught_by(
    "test_different_limits_have_different_states",
    "C11: a limit's state is its own",
)
class MixesUpLimits(Model):
    """Takes N and period together for a limit."""

    def place(self, key, limit):
        return (
            key,
            f"{limit.algorithm}{limit.limit}{limit.period:.0f}{limit.burst}{limit.unit}{limit.shadow}{limit.name}",
        )


@caught_by(
    "test_a_flood_of_keys_frees_nobody",
    "C21: a flood of keys frees nobody",
)
class ForgetsTheLeastRecent(Model):
    """Keeps the thousand keys used last."""

    def write(self, place, history):
        self.histories.pop(place, None)
        super().write(place, history)
        if len(self.histories) > 1_000:
            del self.histories[next(iter(self.histories))]


@caught_by(
    "test_looking_and_refusing_keep_nothing",
    "C21: a refusal leaves nothing to reset",
)
class KeepsWhatItLookedAt(Model):
    """Makes a record for every key it is asked about."""

    def read(self, place, rates, now):
        history = super().read(place, rates, now)
        if place not in self.histories:
            kept = History(rates, [], 0, exists=True, ends=now + rates.period)
            self.histories[place] = kept
        return history


@caught_by(
    "test_what_ran_out_makes_room",
    "C21: what has run out makes room",
)
class KeepsEverything(Model):
    """Never throws a record away."""

    def stats(self):
        return {"entries": len(self.histories)}


# Resets, changes


@caught_by(
    "test_a_reset_forgets_everything",
    "a reset key is as new",
)
class ResetsTheCurrentWindow(Model):
    """Forgets the current window and leaves the one before."""

    def forget(self, place):
        kept = self.histories[place]
        window = kept.rates.window
        now = self.clock() // kept.rates.tick
        kept.charges = [one for one in kept.charges if one.time // window < now // window]
        if kept.rates.algorithm != "sliding-window":
            super().forget(place)


@caught_by(
    "test_a_reset_can_name_limits",
    "reset says how many states went",
)
class ResetsTheKey(Model):
    """Forgets all of a key, whatever it is told."""

    def reset(self, key, *limits):  # noqa: ARG002
        return super().reset(key)


@caught_by(
    "test_a_named_limit_keeps_its_count_when_n_changes",
    "C19: a lowered limit is used up",
)
class StartsAnewWithNewNumbers(Model):
    """A limit with other numbers is another limit, name or not."""

    def place(self, key, limit):
        return key, repr(limit)


@caught_by(
    "test_a_named_limit_keeps_its_count_when_the_period_changes",
    "C19: a new period does not start anew",
)
class ForgetsWhenThePeriodChanges(Model):
    """Starts from nothing when the period is another."""

    def place(self, key, limit):
        return key, f"{limit.algorithm} {limit.period}"


@caught_by(
    "test_a_change_of_limit_admits_no_more_than_the_larger",
    "C1: no span of time admits more than the bound of a",
)
class LoosensAtAChange(Model):
    """Adds what a limit was before to what it is now."""

    def __init__(self, clock):
        super().__init__(clock)
        self.before = {}

    def read(self, place, rates, now):
        before = self.before.setdefault(place, rates)
        if before.period != rates.period:
            more = 3 * before.limit
            rates = replace(rates, limit=rates.limit + more, burst=rates.burst + more)
        return super().read(place, rates, now)


@caught_by(
    "test_no_span_of_time_admits_more_than_the_bound",
    "C1: no span of time admits more than the bound of a",
)
class AdmitsOneMore(Model):
    """Compares with the wrong sign: at the limit is not over it."""

    def read(self, place, rates, now):
        if rates.limit:
            rates = replace(rates, limit=rates.limit + 1, burst=rates.burst + 1)
        return super().read(place, rates, now)


@caught_by(
    "test_the_vectors",
    "C14: sliding-window",
)
class RoundsTheWeightDown(Model):
    """The sliding window's use in whole units, rounded for the caller."""

    def read(self, place, rates, now):
        history = super().read(place, rates, now)
        if rates.algorithm == "sliding-window":
            history.__class__ = _RoundedDown
        return history


class _RoundedDown(History):
    def weight(self, at):
        return Fraction(int(super().weight(at)))


@caught_by(
    "test_any_history_goes_as_in_the_model",
    "C9: a refund says whether it changed anything",
)
class RefundsTheNewest(Model):
    """Takes the newest charge out, whichever was meant."""

    def _give_back(self, place, name, now):
        kept = self.histories.get(place)
        if kept is None or name not in kept.given:
            return False
        return super()._give_back(place, max(kept.given), now)
