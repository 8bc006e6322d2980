"""The nouns of Penstock: frozen values with integer units. Nothing here decides."""
