"""Other schedulers' configurations to Penstock's: `slurm`, `kueue`, `volcano` and `yunikorn`, each with a `read`.

All are read into one queue model (`model`), and one function makes a configuration of it (`toconfig`). Every import
comes with a report of the outcome of each key. Nothing here queries a running scheduler: files in, values out.
"""

from penstock.migrate.clustertext import to_cluster_file as to_cluster_file
from penstock.migrate.errors import ImportFault as ImportFault
from penstock.migrate.model import Imported as Imported
from penstock.migrate.report import MigrationEntry as MigrationEntry
