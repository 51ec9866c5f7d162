"""Records the speculative rounds of a serving engine as Draftscope traces.

    DRAFTSCOPE_RECORD=runs/served vllm serve …

options    the environment variable
measuring  p and q of a step on the device (torch)
listening  what every engine's module shares: requests, rows of a step, what is sent
channel    from the serving process to the writer's: never waits, drops what does not fit
writing    the writer's process: messages become traces (numpy alone)
vllm       where vLLM is listened to
sglang     where SGLang is
core       Draftscope's own modules: the trace format, the search for the best of long rows
"""
