"""llama.cpp's API, as far as its clients have no other."""
