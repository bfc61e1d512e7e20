"""Trains a tiny network of Keras with Determined's callback for it."""

import time

import determined as det
import numpy as np
import tensorflow as tf
from determined.keras import DeterminedCallback

BATCH, BATCHES = 8, 5


class Slow(tf.keras.callbacks.Callback):
    def __init__(self, pause: float) -> None:
        super().__init__()
        self._pause = pause

    def on_train_batch_end(self, batch: int, logs: "dict[str, float] | None" = None) -> None:
        time.sleep(self._pause)


if __name__ == "__main__":
    tf.config.threading.set_intra_op_parallelism_threads(1)
    info = det.get_cluster_info()
    assert info is not None, "this is not a task"
    hparams = info.trial.hparams
    points = np.random.default_rng(1).normal(size=(BATCH * BATCHES, 4)).astype("float32")
    sums = points.sum(axis=1, keepdims=True)
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(optimizer=tf.keras.optimizers.SGD(0.02), loss="mse")
    model.build((None, 4))
    with det.core.init() as context:
        callback = DeterminedCallback(context, info.latest_checkpoint, info.trial.trial_id)
        print(f"begins from {info.latest_checkpoint}", flush=True)
        model.fit(
            points,
            sums,
            batch_size=BATCH,
            epochs=hparams["epochs"],
            validation_data=(points, sums),
            callbacks=[callback, Slow(hparams["pause"])],
            verbose=2,
        )
    print("has trained", flush=True)
