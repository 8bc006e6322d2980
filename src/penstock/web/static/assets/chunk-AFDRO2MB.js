var b={zh:"zh-e595cb7347.json"};export{b as a};
