"""The command line: translates between a terminal and the API; decides nothing. Heavy modules load when used."""
