"""What the client's own harness asks of an experiment's configuration, run by its interpreter; says what it found."""

import json
import sys

import determined as det
from determined import core
from determined.common import storage

trial = det.TrialInfo._from_env()
config = det.ExperimentConfig(trial._config)
length = core._parse_searcher_max_length(config)
units = core._parse_searcher_units(config)
found = {
    "debug": config.debug_enabled(),
    "scheduling_unit": config.scheduling_unit(),
    "native_parallel": config.native_parallel_enabled(),
    "average_training_metrics": config.average_training_metrics_enabled(),
    "slots_per_trial": config.slots_per_trial(),
    "seed": config.experiment_seed(),
    "profiling": [config.profiling_enabled(), list(config.profiling_interval()), config.profiling_sync_timings()],
    "records_per_epoch": config.get_records_per_epoch(),
    "min_validation_period": config.get_min_validation_period(),
    "min_checkpoint_period": config.get_min_checkpoint_period(),
    "metric": config.get_searcher_metric(),
    "smaller_is_better": config["searcher"]["smaller_is_better"],
    "length": [length, units.value if units else None],
    "optimizations": sorted(config.get_optimizations_config()),
    "entrypoint": config.get_entrypoint(),
    "checkpoint_policy": config["checkpoint_policy"],
    "perform_initial_validation": config["perform_initial_validation"],
    "pachyderm": config["integrations"]["pachyderm"],
    "data": config.get("data", {}),
    "masked": det.util.mask_config_dict(config)["checkpoint_storage"],
    "storage": type(storage.build(config.get_checkpoint_storage(), container_path="/shared")).__name__,
}
json.dump(found, sys.stdout)
