"""Control tokens as the tokenizers' own files and chat templates have them, by family of models."""

FAMILIES: dict[str, tuple[str, ...]] = {
    "Qwen": (
        *("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<tool_call>", "</tool_call>", "<tool_response>"),
        *("</tool_response>", "<think>", "</think>", "/think", "/no_think", "<tools>", "</tools>"),
        *("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>", "<|audio_bos|>", "<|AUDIO|>"),
        *("<|object_ref_start|>", "<|box_start|>", "<|quad_start|>", "<img>", "</img>", "<ref>", "<box>", "<quad>"),
    ),
    "GLM": (
        *("[gMASK]", "[sMASK]", "[MASK]", "<sop>", "<eop>", "<|observation|>", "<|begin_of_image|>"),
        *("<|begin_of_box|>", "<|end_of_box|>", "/nothink", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    ),
    "Nemotron": (
        *("<SPECIAL_10>", "<SPECIAL_11>", "<extra_id_0>", "<extra_id_1>", "<TOOLCALL>", "</TOOLCALL>"),
        *("<AVAILABLE_TOOLS>", "</AVAILABLE_TOOLS>", "<TOOL_RESPONSE>", "/no_think", "/think"),
    ),
    "Cohere": (
        *("<BOS_TOKEN>", "<EOS_TOKEN>", "<EOP_TOKEN>", "<MASK_TOKEN>", "<PAD>", "<UNK>", "<CLS>", "<SEP>"),
        *("<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|SYSTEM_TOKEN|>", "<|USER_TOKEN|>"),
        *("<|CHATBOT_TOKEN|>", "<|START_THINKING|>", "<|START_RESPONSE|>", "<|START_ACTION|>"),
    ),
    "Kimi": (
        *("[BOS]", "[EOS]", "[EOT]", "[UNK]", "[PAD]", "<|im_middle|>", "<|im_user|>", "<|im_assistant|>"),
        *("<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|media_begin|>", "<|media_pad|>"),
    ),
    "Gemma": (
        *("<bos>", "<eos>", "<pad>", "<unk>", "<mask>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>"),
        *("<end_of_image>", "<image_soft_token>", "<audio_soft_token>", "<unused0>", "[multimodal]"),
        *("<|turn>", "<turn|>", "<|channel>", "<channel|>", "<start_function_call>", "<end_function_call>"),
    ),
    "Llama": (
        *("<s>", "</s>", "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>", "<|begin_of_text|>", "<|eot_id|>"),
        *("<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>", "<|begin_of_text|>", "<|header_start|>"),
        *("<|header_end|>", "<|eot|>", "<|eom|>", "<|image_start|>", "<|patch|>", "<|finetune_right_pad|>"),
    ),
    "Mistral": (
        *("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]"),
        *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CONTENT]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"),
        *("[IMG]", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[AUDIO]", "[BEGIN_AUDIO]"),
        *("[MODEL_SETTINGS]", "[/MODEL_SETTINGS]"),
    ),
    "harmony": ("<|start|>", "<|channel|>", "<|message|>", "<|return|>", "<|call|>", "<|constrain|>", "<|end|>"),
    "Phi": ("<|system|>", "<|user|>", "<|assistant|>", "<|endofprompt|>", "<|im_sep|>", "<|image_1|>", "<|tool|>"),
    "Granite": (
        *("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>", "<fim_prefix>", "<fim_middle>", "<fim_suffix>"),
        *("<reponame>", "<gh_stars>", "<issue_start>", "<empty_output>"),
    ),
    "DeepSeek": (
        *("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<image_placeholder>"),
        *("<｜tool▁calls▁begin｜>", "<｜fim▁hole｜>"),
    ),
    "images, audio, video": (
        *("<image>", "</image>", "<image_0>", "<im_start>", "<im_end>", "<im_patch>", "<IMG_CONTEXT>", "<video>"),
        *("<audio>", "</audio>", "<sound>", "<speech>", "<vision_start>", "<fake_token_around_image>", "<global-img>"),
        *("<image_bos>", "<row_1_col_2>", "<video_placeholder>", "<end_of_utterance>"),
    ),
    "others": (
        *("<seed:bos>", "<seed:eos>", "<seed:think>", "</seed:think>", "<seed:tool_call>"),  # Seed
        *("[|system|]", "[|user|]", "[|assistant|]", "[|endofturn|]"),  # EXAONE
        *("]~b]", "]~!b[", "[e~[", "<minimax:tool_call>"),  # MiniMax
        *("<eoh>", "<eoa>", "<TOKENS_UNUSED_1>", "[UNUSED_TOKEN_146]"),  # InternLM
        *("<reserved_106>", "<eod>", "<sep>", "<cls>", "[CLS]", "[SEP]"),  # Baichuan, BERT and others
        *("<function_calls>", "</function_calls>", "<thinking>", "</thinking>", "<function_call>"),
    ),
}
TOKENS = list(dict.fromkeys(token for tokens in FAMILIES.values() for token in tokens))
