"""Images as they are stored: a spec that several jobs share, as the members of an array do, is in it once."""

from collections import Counter

from msgspec.structs import replace

from penstock.core.model.jobs import GangAsk, JobSpec
from penstock.core.model.resources import ReplicaAsk, Resources
from penstock.core.state.state import Image

OWN = -1
"""Instead of a place among the shared specs: the job has its own."""
_STAND_IN = JobSpec((), GangAsk(1, ReplicaAsk(Resources())))


def packed(image: Image) -> Image:
    """Return the image with shared specs apart; only for bytes that are made from it."""
    counts = Counter(id(job.spec) for job in image.jobs)
    if len(counts) == len(image.jobs) or image.spec_of:
        return image
    places: dict[int, int] = {}
    specs: list[JobSpec] = []
    spec_of: list[int] = []
    jobs = []
    for job in image.jobs:
        own = counts[id(job.spec)] == 1
        if not own and id(job.spec) not in places:
            places[id(job.spec)] = len(specs)
            specs.append(job.spec)
        spec_of.append(OWN if own else places[id(job.spec)])
        jobs.append(job if own else replace(job, spec=_STAND_IN))
    return replace(image, jobs=jobs, specs=tuple(specs), spec_of=tuple(spec_of))


def unpacked(image: Image) -> Image:
    """Return the image as the state gives it, one object for each spec that is shared."""
    if not image.spec_of:
        return image
    pairs = zip(image.jobs, image.spec_of, strict=True)
    jobs = [job if place == OWN else replace(job, spec=image.specs[place]) for job, place in pairs]
    return replace(image, jobs=jobs, specs=(), spec_of=())
