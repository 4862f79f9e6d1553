"""The API of Ebb and nothing else: models, names, and the CRD made from them."""
