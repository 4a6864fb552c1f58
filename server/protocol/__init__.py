"""The OpenAI API's requests and responses, with vLLM's additions."""
