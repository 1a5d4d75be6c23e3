"""Decide where a memory found in a conversation holds: in its project, or in all projects. Pure.

A statement holds in the project of its conversation unless the person said that it holds everywhere, in
the same sentence. "everywhere" alone is not enough: in a repository it usually means everywhere in its
code. docs/decisions/028-what-belongs-to-a-project.md
"""

from __future__ import annotations

from perdure.regex import lazy_re

_EVERYWHERE = lazy_re(
    r"""(?ix)(?<!not\ )(?<!nicht\ )(?:
      \b(?:in|for|across|on|with)\ (?:all|each|every|any)(?:\ of)?(?:\ (?:my|our|the))?(?:\ (?:other|own|future|new))?
        \ (?:projects?|repos?|repositor(?:y|ies)|code\ ?bases?)\b
    | \b(?:whatever|whichever|no\ matter\ (?:which|what)|regardless\ of\ the)\ (?:project|repo(?:sitory)?)\b
    | \b(?:wherever|everywhere)\ (?:i|we)\ (?:work|code|go)\b
    | \balways,?\ (?:and\ )?everywhere\b | \beverywhere,?\ (?:and\ )?always\b
    | \b(?:in|für|bei)\ alle[nr]?(?:\ (?:meine|unsere)[nr]?)?\ (?:projekten?|repos|repositories)\b
    | \b(?:in|für|bei)\ jede[ms]\ (?:projekt|repo(?:sitory)?)\b
    | \bimmer\ und\ überall\b | \büberall\ und\ immer\b
    | \b(?:dans|pour)\ (?:tous\ (?:mes|nos|les)\ projets|chaque\ projet)\b | \btoujours\ et\ partout\b
    | \b(?:en|para)\ (?:todos\ (?:mis|nuestros|los)\ proyectos|cada\ proyecto)\b | \bsiempre\ y\ en\ todas\ partes\b
    | \b(?:in|per)\ (?:tutti\ i(?:\ (?:miei|nostri))?\ progetti|ogni\ progetto)\b | \bsempre\ e\ ovunque\b
    | \b(?:em|para)\ (?:todos\ os(?:\ (?:meus|nossos))?|cada)\ projetos?\b
    | (?:所有|每个|每個|任何)的?(?:项目|項目|專案) | (?:すべて|全て|全部)のプロジェクト | どのプロジェクトでも
    )(?!\ (?:of|in|inside|within|under|below|here)\b)"""
)


def is_said_everywhere(sentence: str) -> bool:
    """Return True if a person says in this sentence that it holds in all of their projects.

    >>> is_said_everywhere("Always, everywhere: no console logs!"), is_said_everywhere("Use tabs in every project.")
    (True, True)
    >>> is_said_everywhere("Use snake_case everywhere."), is_said_everywhere("in all projects of this workspace")
    (False, False)
    """
    return bool(_EVERYWHERE.search(" ".join(sentence.split())))
