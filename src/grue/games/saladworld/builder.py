"""Builds a SaladWorld level with TextWorld's GameMaker and Inform 7.

    python -m grue.games.saladworld.builder [FOLDER]

writes ``saladworld-N.z8`` and ``saladworld-N.json`` for every level. The files are shipped, so
players need neither this module nor Inform 7.
"""

# TextWorld's own annotations are wrong in many places (``*entities: List[WorldEntity]``).
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

from textworld import GameMaker, GameOptions
from textworld.generator import Game
from textworld.generator.data import KnowledgeBase
from textworld.generator.game import Event, GameProgression, Quest
from textworld.generator.inform7 import compile_inform7_game, generate_inform7_source
from textworld.generator.maker import WorldEntity

from grue.games.saladworld.world import LEVELS, OPPOSITE, Goal, Level, command_set

PACKAGE = "grue.games.saladworld"


def build_game(level: Level) -> Game:
    """The level as a TextWorld game: world, quests, texts, commands and walkthrough."""
    with tempfile.TemporaryDirectory(prefix="saladworld-") as folder:
        knowledge = load_knowledge(level, Path(folder))
        options = GameOptions()
        options.kb = knowledge
        options.seeds = level.number
        options.grammar.theme = "salad"
        options.grammar.blend_descriptions = True
        maker = GameMaker(options)
        entities = _make_world(maker, level)
        maker.quests = [_make_quest(maker, entities, subtask) for subtask in level.subtasks]
        game = maker.build()

    # The temporary folder's name must not get into the game.
    knowledge.text_grammars_path = PACKAGE
    game.grammar.options.names_to_exclude = sorted(
        name for name in game.grammar.options.names_to_exclude if name
    )
    game.objective = objective(level)
    game.metadata = {
        "name": level.name,
        "desc": f"SaladWorld level {level.number} (Jain et al., 2020).",
        "episode_steps": level.episode_steps,
        "commands": list(command_set(level)),
        "whole_names_only": True,
    }
    game.metadata["walkthrough"] = walkthrough(game, level.subtasks)
    return game


def objective(level: Level) -> str:
    return "You are making a salad. " + " ".join(subtask.text for subtask in level.subtasks)


def load_knowledge(level: Level, folder: Path) -> KnowledgeBase:
    """The cooking challenge's logic with SaladWorld's text grammar.

    Doors get an article, as in the story (see ``inform7_source``). Only level 7 has the meal, since
    its Inform code does not compile without a recipe. Its rule is rewritten, since TextWorld's
    rules ignore how ingredients must be cut.
    """
    cooking = files("textworld") / "challenges" / "tw_cooking" / "textworld_data" / "logic"
    logic = folder / "logic"
    shutil.copytree(str(cooking), logic)
    meal = logic / "meal.twl"
    if level.recipe:
        meal.write_text(_fix_recipe_rules(meal.read_text(), level.recipe))
    else:
        meal.unlink()

    door = logic / "door.twl"
    door.write_text(re.sub(r':: "(\w+ing) {d}', r':: "\1 the {d}', door.read_text()))

    grammars = folder / "text_grammars"
    grammars.mkdir()
    (grammars / "salad.twg").write_text((files(PACKAGE) / "salad.twg").read_text())
    return KnowledgeBase.load(str(folder))


def _fix_recipe_rules(logic: str, recipe: Iterable[tuple[str, str]]) -> str:
    cuts = [cut for _, cut in recipe]
    size = len(cuts)
    foods = ["f" + "'" * i for i in range(size)]
    needed = " & ".join(
        f"in({f}, I) & $ingredient_{i}({f}) & $raw({f}) & ${cut}({f})"
        for i, (f, cut) in enumerate(zip(foods, cuts, strict=True), 1)
    )
    used = " & ".join(f"used({f})" for f in foods)
    rule = (
        f"make/recipe/{size} :: $player_in_cooking_location(P, r) & {needed} & "
        f"$out(meal, RECIPE) -> in(meal, I) & edible(meal) & {used} & raw(meal);"
    )
    lines = []
    for line in logic.splitlines():
        found = re.match(r"\s*make/recipe/(\d) :: (\$?)", line)
        if found and int(found[1]) != size:
            continue
        lines.append(rule if found and found[2] else line)
    return "\n".join(lines)


def _make_world(maker: GameMaker, level: Level) -> dict[str, WorldEntity]:
    entities = {name: _named(maker.new_room(name), name) for name in level.rooms}
    for passage in level.passages:
        here, there = entities[passage.room], entities[passage.to]
        path = maker.connect(
            here.exits[passage.direction], there.exits[OPPOSITE[passage.direction]]
        )
        if passage.door:
            door = maker.new_door(path, passage.door)
            door.add_property("locked")
            entities[passage.door] = _named(door, passage.door)

    for thing in level.things:
        entity = maker.new(type=thing.type, name=thing.name, desc=thing.description)
        entity.infos.indefinite = thing.article
        for name in thing.properties:
            entity.add_property(name)
        entities[thing.name] = _named(entity, thing.name)
    for thing in level.things:
        entities[thing.location].add(entities[thing.name])
        if thing.opens:
            maker.add_fact("match", entities[thing.name], entities[thing.opens])

    if level.recipe:
        entities["meal"] = _make_recipe(maker, level, entities)
    maker.set_player(entities[level.start])
    entities |= {"P": maker.player, "I": maker.inventory}
    return entities


def _named(entity: WorldEntity, name: str) -> WorldEntity:
    # With an empty adjective the grammar does not describe things in groups.
    entity.infos.adj, entity.infos.noun = "", name
    return entity


def _make_recipe(maker: GameMaker, level: Level, entities: dict[str, WorldEntity]) -> WorldEntity:
    """The meal and its recipe, out of play, as the cooking challenge states them."""
    recipe = maker.new(type="RECIPE", name="")
    meal = _named(maker.new(type="meal", name="meal"), "meal")
    meal.add_property("edible")
    maker.add_fact("out", meal, recipe)
    maker.add_fact("cooking_location", entities["kitchen"], recipe)
    maker.nowhere += [recipe, meal]
    for i, (name, cut) in enumerate(level.recipe, 1):
        ingredient = maker.new(type="ingredient", name="")
        entities[name].add_property(f"ingredient_{i}")
        maker.add_fact("base", entities[name], ingredient)
        maker.add_fact(cut, ingredient)
        maker.add_fact("raw", ingredient)
        maker.add_fact("in", ingredient, recipe)
        maker.nowhere.append(ingredient)
    return meal


def _make_quest(maker: GameMaker, entities: dict[str, WorldEntity], subtask: Goal) -> Quest:
    def fact(predicate: str, *names: str):
        return maker.new_fact(predicate, *(entities[name] for name in names))

    # Lists, because sets would make the order of facts depend on hashing.
    return Quest(
        win_events=[Event(conditions=[fact(*condition) for condition in subtask.conditions])],
        fail_events=[Event(conditions=[fact(*spoiler)]) for spoiler in subtask.spoilers],
        reward=subtask.reward,
        desc=subtask.text,
    )


def walkthrough(game: Game, subtasks: Iterable[Goal]) -> list[str]:
    """The subtasks' errands one after another, without needless commands.

    Refused commands are left out, and so are detours that end in an earlier state.
    """
    progress = GameProgression(game)
    seen = [_situation(progress)]
    kept: list[str] = []
    for command in (c for subtask in subtasks for c in subtask.errand):
        if progress.completed:
            break
        action = _find_action(game, progress, command)
        if action is None:
            continue
        progress.update(action)
        situation = _situation(progress)
        if situation in seen:
            cut = seen.index(situation)
            del kept[cut:], seen[cut + 1 :]
        else:
            kept.append(command)
            seen.append(situation)
    if not progress.completed:
        raise RuntimeError(f"the errands do not finish {game.metadata['name']}")
    return kept


def _situation(progress: GameProgression) -> tuple[frozenset, tuple[bool, ...]]:
    done = tuple(quest.completed for quest in progress.quest_progressions)
    return frozenset(progress.state.facts), done


def _find_action(game: Game, progress: GameProgression, command: str):
    names = {key: info.name for key, info in game.infos.items()}
    for action in progress.valid_actions:
        text = action.format_command(names)
        # "take X" also takes from a supporter or container.
        if text == command or (
            action.name.startswith("take/") and command == text.split(" from ")[0]
        ):
            return action
    return None


def inform7_source(game: Game) -> str:
    """TextWorld's Inform 7 source without its banner and without one-word synonyms.

    TextWorld prints doors without an article ("You open blue door."); here they have one. One-word
    synonyms such as "key" are ambiguous. The game file records this as ``whole_names_only``.
    """
    source = generate_inform7_source(game)
    source, banners = re.subn(
        r"(Rule for printing the banner text:\n).*?(\t+say \"\[objective\])",
        r"\1\2",
        source,
        flags=re.DOTALL,
    )
    if banners != 1:
        raise RuntimeError("TextWorld's Inform 7 source has no banner rule to replace")
    for info in game.infos.values():
        words = (info.name or "").split()
        if info.type != "r" and len(words) > 1:
            for word in words:
                source = source.replace(f'Understand "{word}" as {info.id}.\n', "")
    doors = [info.id for info in game.infos.values() if info.type == "d"]
    return source + "".join(f"The {door} is improper-named.\n" for door in doors)


def build(level: Level, folder: Path) -> Path:
    """Writes the level's .z8 and .json to a folder and returns the path of the story file."""
    game = build_game(level)
    story = folder / f"{level.name}.z8"
    with tempfile.TemporaryDirectory(prefix="saladworld-") as scratch:
        built = Path(scratch) / story.name
        compile_inform7_game(inform7_source(game), str(built))
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(built, story)
    story.with_suffix(".json").write_text(json.dumps(game.serialize()) + "\n")
    return story


def main(arguments: list[str]) -> None:
    folder = Path(arguments[0]) if arguments else Path(str(files(PACKAGE))) / "data"
    for level in LEVELS:
        print(build(level, folder))


if __name__ == "__main__":
    main(sys.argv[1:])
