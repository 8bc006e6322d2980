"""The pages of the server: built files and the headers they are sent with. A client of the public API, nothing else."""
