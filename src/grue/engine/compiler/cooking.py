"""The rules about food: cutting, cooking, eating, drinking, preparing the meal."""

from __future__ import annotations

from grue.engine.compiler.inform import Replies, Reply, RuleBook, say
from grue.engine.compiler.model import (
    HELD,
    HIDDEN,
    MISSING,
    READY,
    WRONG_COOKING,
    WRONG_CUT,
    Effect,
)
from grue.engine.compiler.parser import CANNOT_SEE
from grue.errors import CannotCompileError


class CookBook(RuleBook):
    """All rules of TextWorld's games, those of cooking games included."""

    def slice(self, command: str, food: str, knife: str) -> Replies:
        return self._cut(command, food, knife)

    def dice(self, command: str, food: str, knife: str) -> Replies:
        return self._cut(command, food, knife)

    def chop(self, command: str, food: str, knife: str) -> Replies:
        return self._cut(command, food, knife)

    def _cut(self, command: str, food: str, knife: str) -> Replies:
        known, name = self.model.combinations(food), self.model.name(food)
        verb = self.model.actions[command][0].rule

        def reply(food_reach: int, knife_reach: int, status: int = 0) -> Reply:
            if HIDDEN in (food_reach, knife_reach):
                return say(CANNOT_SEE)
            cut = next((c for c in ("sliced", "diced", "chopped") if c in known[status]), None)
            if cut is not None:
                return say(f"The {name} is already {cut}.")
            if food_reach != HELD:
                return self._take_first(food)
            if knife_reach != HELD:
                return self._take_first(knife)
            return say(f"You {verb} the {name}.", self.effect(verb, command))

        return (("reach", food), ("reach", knife), *self._status(food)), reply

    def cook(self, command: str, food: str, heat: str) -> Replies:
        known, name = self.model.combinations(food), self.model.name(food)
        done = {"stove": "fried", "oven": "roasted", "toaster": "grilled"}
        how = next(word for kind, word in done.items() if self.model.is_a(heat, kind))

        def reply(reach: int, here: int, status: int = 0) -> Reply:
            if reach == HIDDEN or not here:
                return say(CANNOT_SEE)
            if reach != HELD:
                return self._take_first(food)
            burns = known[status] & {"cooked", "burned"}
            text = f"You burned the {name}!" if burns else f"You {how} the {name}."
            return say(text, self._food_effect(command, food, known[status]))

        return (("reach", food), ("here", heat), *self._status(food)), reply

    def _food_effect(self, command: str, food: str, known: frozenset[str]) -> Effect | None:
        """The effect of the rule that the state of a food allows, if any does."""
        for action in self.model.actions[command]:
            needed = {f[0] for f in action.needs if len(f) == 2 and f[1] == food}
            if needed <= known:
                return self.effect(action.rule, command)
        return None

    def eat(self, command: str, food: str) -> Replies:
        known, name = self.model.combinations(food), self.model.name(food)

        def reply(reach: int, status: int = 0) -> Reply:
            if reach == HIDDEN:
                return say(CANNOT_SEE)
            if "needs_cooking" in known[status]:
                return say(f"You should cook the {name} first.")
            effect = self._food_effect(command, food, known[status])
            if effect is None:
                return say("That's plainly inedible.")
            if reach != HELD:
                return self._take_first(food)
            return say(f"You eat the {name}. Not bad.", effect)

        return (("reach", food), *self._status(food)), reply

    def drink(self, command: str, food: str) -> Replies:
        known, name = self.model.combinations(food), self.model.name(food)

        def reply(reach: int, status: int = 0) -> Reply:
            if reach == HIDDEN:
                return say(CANNOT_SEE)
            if reach != HELD:
                return self._take_first(food)
            if "drinkable" not in known[status]:
                return say(f"You cannot drink the {name}.")
            return say(f"You drink the {name}. Not bad.", self.effect("drink", command))

        return (("reach", food), *self._status(food)), reply

    def make(self, command: str) -> Replies:
        kitchen = self.model.cooking_location
        if kitchen is None:
            raise CannotCompileError("the recipe has no cooking location")
        place = self.model.name(kitchen).title()
        stops = {
            MISSING: "You still miss something.",
            WRONG_COOKING: "Something still needs to be cooked.",
            WRONG_CUT: "Something still needs to be cut.",
        }
        rule = f"make/recipe/{len(self.model.recipe)}"

        def reply(room: int, *ingredients: int) -> Reply:
            if self.model.rooms[room] != kitchen:
                return say(f"Can only prepare meal in the -= {place} =-.")
            stopped = next((i for i in ingredients if i != READY), None)
            if stopped is not None:
                return say(stops[stopped])
            return say("Adding the meal to your inventory.", self.effect(rule, command))

        foods = (("ingredient", food) for food, _, _ in self.model.recipe)
        return (("room", "P"), *foods), reply
