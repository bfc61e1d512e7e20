"""Readable names for jobs that were given none: `brisk-otter-417`."""

import random

_ADJECTIVES = (
    "agile amber apt ardent bold brave breezy bright brisk calm candid cheery clever cosmic crisp deft eager early "
    "fair fleet fond fresh gentle glad golden grand happy hardy honest jolly keen kind lively lucid lucky merry mellow "
    "mighty neat nimble noble polite proud quick quiet rapid ready royal sharp shiny silent smart snappy snug solid "
    "spry steady sunny swift tidy vivid warm wise witty zesty"
)
_NOUNS = (
    "alder badger beacon birch bison brook canyon cedar comet condor coral crane delta dolphin eagle ember falcon fern "
    "finch fjord forest fox gecko glacier grove harbor hawk heron ibex island jaguar juniper kestrel lagoon lark lemur "
    "lynx maple marlin meadow meteor mesa moose nebula newt ocelot orchid osprey otter owl panda pebble pine planet "
    "puffin quail quartz rabbit raven reef river robin salmon sparrow spruce summit tiger tulip walrus willow wolf"
)


def readable(chance: random.Random) -> str:
    return f"{chance.choice(_ADJECTIVES.split())}-{chance.choice(_NOUNS.split())}-{chance.randrange(100, 1000)}"
