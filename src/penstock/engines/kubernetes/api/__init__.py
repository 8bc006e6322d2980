"""The API server: who asks, requests and refusals, and copies of its objects kept by watches."""
