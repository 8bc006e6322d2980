"""Messages to users: `service` follows the log, `queues` gathers, the others send by one channel each."""
