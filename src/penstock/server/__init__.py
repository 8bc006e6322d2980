"""The HTTP API: translates between HTTP and the control loop; decides nothing."""
