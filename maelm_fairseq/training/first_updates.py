"""What a run says before fairseq's own log of it begins."""

import datetime
import logging
import time

logger = logging.getLogger(__name__)

# Updates of a run after which progress is reported, before fairseq's own log begins.
REPORTED_UPDATES = (1, 10, 25)


class FirstUpdates:
    """Says after the first updates of a run how long one takes, and how long the rest will take."""

    def __init__(self):
        self.first = None  # the number of its first update, and the time at its end
        self.reported = set()

    def report(self, update, max_update):
        """To be called after each update.

        Args:
            update: its number
            max_update: number of the run's last update, 0 if there is none
        """
        now = time.monotonic()
        if self.first is None:
            self.first = update, now
        first_update, first_end = self.first
        count = update - first_update  # without the first, which allocates memory and is slower
        if count + 1 not in REPORTED_UPDATES or count in self.reported:
            return
        self.reported.add(count)
        name = f"update {update:,} of {max_update:,}" if max_update else f"update {update:,}"
        if not count:
            logger.info(f"{name} done")
            return
        seconds = (now - first_end) / count
        line = f"{name}: {seconds:.2g} seconds per update"
        if max_update:
            left = datetime.timedelta(seconds=int(seconds * (max_update - update)))
            line += f", {left} left"
        logger.info(line)
