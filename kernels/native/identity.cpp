// What a library was compiled from, so that one that was compiled elsewhere is known to fit.

extern "C" {

const char* turnout_sources() { return TURNOUT_SOURCES; }
}
